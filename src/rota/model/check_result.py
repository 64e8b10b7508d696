"""Result of one check of the server or the schema: level, message, measured value and fix."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "notice", "problem", "unchecked"]
"""`unchecked`: the check could not run, so the state is unknown."""

_SEVERITY_ORDER: tuple[Level, ...] = ("problem", "notice", "unchecked", "ok")


class CheckResult(msgspec.Struct, frozen=True):
    check: str
    level: Level
    message: str
    value: float | None = None
    """Measured value that determined the level, in `unit`."""
    unit: str = ""
    fix: str | None = None
    """Command, statement or setting that can be pasted."""

    @property
    def rank(self) -> int:
        return _SEVERITY_ORDER.index(self.level)


def level_for(value: float, notice: float, problem: float) -> Level:
    """Return the level of a value that should be small."""
    return "problem" if value >= problem else "notice" if value >= notice else "ok"


def format_size(count: float) -> str:
    """Return a number of bytes with a suitable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.3g} TB"
