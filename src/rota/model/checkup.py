"""What a look at the server and the schema found: one thing each, with a figure, and what mends it."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "notice", "problem", "unseen"]
"""`unseen`: it could not be looked at, which is neither good nor bad."""

_ORDER: tuple[Level, ...] = ("problem", "notice", "unseen", "ok")


class Checked(msgspec.Struct, frozen=True):
    check: str
    level: Level
    words: str
    figure: float | None = None
    """What it was judged by, in `unit`."""
    unit: str = ""
    fix: str | None = None
    """A command, a statement or a setting, to be pasted."""

    @property
    def rank(self) -> int:
        return _ORDER.index(self.level)


def grade(value: float, notice: float, problem: float) -> Level:
    """How bad a figure is that should be small."""
    return "problem" if value >= problem else "notice" if value >= notice else "ok"


def size(count: float) -> str:
    """Bytes, as a person says them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.3g} TB"


def duration(seconds: float) -> str:
    """Seconds, in the unit a person would say them in."""
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
