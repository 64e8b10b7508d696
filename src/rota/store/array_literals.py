"""Arrays as PostgreSQL's literals.

A driver turns a list into an array element by element, through a dozen of its own functions; on the way
of every job that costs more than running it. Joining text is one call.
"""

from __future__ import annotations

from collections.abc import Iterable


def int_array(values: Iterable[int | str]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def text_array(values: Iterable[str | None]) -> str:
    return f"{{{array_items(values)}}}"


def array_items(values: Iterable[str | None]) -> str:
    """Texts as they stand in a literal, without the braces."""
    return ",".join([_quoted(value) for value in values])


def bool_array(values: Iterable[bool]) -> str:
    return f"{{{','.join(['t' if value else 'f' for value in values])}}}"


def microsecond_array(values: Iterable[float]) -> str:
    """Seconds as whole microseconds: the shortest to write and to read."""
    return f"{{{','.join([str(int(value * 1e6)) for value in values])}}}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
