"""Words for people that several parts of the program share: suggestions for a misspelled name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that a user probably meant; None if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return "did you mean 'x'?", or all names there are."""
    known = list(names)
    closest = closest_name(name, known)
    if closest is not None:
        return f"did you mean {closest!r}?"
    return f"it has: {', '.join(known) or 'none'}"
