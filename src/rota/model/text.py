"""Words for people that several parts of the program share: numbers with nouns, durations, suggestions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
"""Seconds and name of each unit, and of the next smaller one."""

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters except line breaks and tabs; from U+2028 on: line separators and text direction."""


def counted(
    count: int, singular: str, plural: str | None = None, *, limit: float = math.inf
) -> str:
    """Return a number with its noun: "1 job", "1,200 jobs"; "1,000 or more jobs" if counting stopped there.

    `plural` is given if it is more than the singular with an s: counted(2, "job is", "jobs are").
    """
    more = " or more" if count >= limit else ""
    return f"{count:,}{more} {singular if count == 1 else plural or singular + 's'}"


def in_one_unit(seconds: float) -> str:
    """Return a duration in its largest unit: "1.5 h"."""
    for size, unit, *_ in UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def in_whole_units(seconds: float, detail_below: float = math.inf) -> str:
    """Return a duration in one or two units, rounded down: "4 min 10 s".

    The second unit is left out from `detail_below` of the first one on.
    """
    for size, unit, small_size, small_unit in UNITS:
        if seconds >= size:
            whole, remainder = divmod(int(seconds), size)
            small = remainder // small_size
            detail = f" {small} {small_unit}" if small and whole < detail_below else ""
            return f"{whole:,} {unit}{detail}"
    return f"{seconds:.0f} s"


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that a user probably meant; None if none is similar."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return "did you mean 'x'?", or all names there are."""
    known = list(names)
    closest = closest_name(name, known)
    if closest is not None:
        return f"did you mean {closest!r}?"
    return f"it has: {', '.join(known) or 'none'}"


def escape_control(value: str) -> str:
    """Return the text with control characters, except line breaks and tabs, as escapes."""
    return _CONTROL_CHARACTERS.sub(_escape, value)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def single_line(value: str) -> str:
    """Return the text on one line, with control characters as escapes."""
    return " ".join(escape_control(value).split())
