"""Array literals of PostgreSQL.

A driver converts a list to an array element by element, through a dozen of its own functions. For every
job that costs more than running it. Joining strings is one call.
"""

from __future__ import annotations

from collections.abc import Iterable


def int_array(values: Iterable[int | str]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def text_array(values: Iterable[str | None]) -> str:
    return f"{{{array_items(values)}}}"


def array_items(values: Iterable[str | None]) -> str:
    """Return quoted texts as they appear inside an array literal, without the braces."""
    return ",".join([_quoted(value) for value in values])


def bool_array(values: Iterable[bool]) -> str:
    return f"{{{','.join(['t' if value else 'f' for value in values])}}}"


def microsecond_array(values: Iterable[float]) -> str:
    """Return seconds as whole microseconds, the shortest form to write and to parse."""
    return f"{{{','.join([str(int(value * 1e6)) for value in values])}}}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
