"""What a look at the server and the schema found: one thing each, with a figure, and what mends it."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "notice", "problem", "unchecked"]
"""`unchecked`: it could not be looked at, which is neither good nor bad."""

_SEVERITY_ORDER: tuple[Level, ...] = ("problem", "notice", "unchecked", "ok")


class CheckResult(msgspec.Struct, frozen=True):
    check: str
    level: Level
    message: str
    value: float | None = None
    """What it was judged by, in `unit`."""
    unit: str = ""
    fix: str | None = None
    """A command, a statement or a setting, to be pasted."""

    @property
    def rank(self) -> int:
        return _SEVERITY_ORDER.index(self.level)


def level_for(value: float, notice: float, problem: float) -> Level:
    """How bad a figure is that should be small."""
    return "problem" if value >= problem else "notice" if value >= notice else "ok"


def format_size(count: float) -> str:
    """Bytes, as a person says them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.3g} TB"


def format_duration(seconds: float) -> str:
    """Seconds, in the unit a person would say them in."""
    for unit_seconds, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit_seconds:
            return f"{seconds / unit_seconds:.1f} {unit}"
    return f"{seconds:.1f} s"
