"""Common types of the API's documents.

Ids, lock tokens and terms are 64-bit integers. JavaScript represents only 53 bits exactly, so in JSON they
are strings of digits. Times are ISO 8601 in UTC, durations are seconds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.errors import ArgumentError

S = TypeVar("S", bound=msgspec.Struct)

MAX_INT64 = 2**63 - 1

_ID = Meta(pattern="^[0-9]{1,19}$", description="A 64-bit integer, as text.")
Id = Annotated[str, _ID]
PathId = Annotated[int, Meta(ge=1, le=MAX_INT64)]

Limit = Annotated[int, Meta(ge=1, le=500, description="Maximum number of rows.")]
Cursor = Annotated[
    str,
    Meta(max_length=2800, description="`next` of the previous page."),
]
Next = Annotated[str, Meta(description="Cursor of the next page; null on the last page.")]
Name = Annotated[str, Meta(min_length=1, max_length=200)]

StoredJson = Annotated[msgspec.Raw, Meta(description="Any JSON. Absent for viewers.")] | UnsetType
"""Input or result of a run."""


def to_document(kind: type[S], row: msgspec.Struct, **extra: Any) -> S:
    """Return a row as a document: the fields both have in common, and those of `extra`."""
    values = {
        name: extra[name] if name in extra else convert(getattr(row, name))
        for name, convert in _fields(kind)
        if name in extra or hasattr(row, name)
    }
    return kind(**values)


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any], Any]]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(name, _conversion(hints[name])) for name in kind.__struct_fields__]


def _conversion(hint: Any) -> Callable[[Any], Any]:
    """Return the conversion of a field: str for an id, otherwise identity."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        return str if _ID in metadata else _conversion(inner)
    if get_origin(hint) is list:
        each = _conversion(get_args(hint)[0])
        return lambda values: [each(value) for value in values] if each is str else values
    if get_origin(hint) in (Union, UnionType):
        kinds = [_conversion(kind) for kind in get_args(hint)]
        return _text if str in kinds else _identity
    return _identity


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _identity(value: Any) -> Any:
    return value


def stored_json(document: bytes | None, *, visible: bool) -> msgspec.Raw | UnsetType:
    """Return stored JSON unchanged, or UNSET if the caller may not see it."""
    if not visible:
        return UNSET
    return msgspec.Raw(b"null" if document is None else document)


class _Kind(msgspec.Struct):
    type: str = ""


class ErrorDetail(msgspec.Struct, frozen=True):
    """Error of a task. Message and traceback are absent for viewers, because they may quote the input."""

    type: str
    message: str | UnsetType = UNSET
    traceback: str | UnsetType = UNSET


def error_detail(document: bytes | None, *, visible: bool) -> ErrorDetail | None:
    if document is None:
        return None
    if not visible:
        return ErrorDetail(msgspec.json.decode(document, type=_Kind).type)
    found: Mapping[str, Any] = msgspec.json.decode(document)
    texts = {key: str(found[key]) for key in ("message", "traceback") if found.get(key) is not None}
    return ErrorDetail(str(found.get("type", "")), **texts)


# Pagination

_CURSOR = re.compile(r"[A-Za-z0-9_-]+")


def encode_cursor(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """Return the position a page begins after, or None for the first page. Raise ArgumentError if it is
    invalid.
    """
    if cursor is None:
        return None
    try:
        if not _CURSOR.fullmatch(cursor):
            raise ValueError
        found = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        raise _invalid_cursor() from None
    if "\0" in found:
        raise _invalid_cursor()
    return found


def decode_id_cursor(cursor: str | None, default: int) -> int:
    """Return the position of a list ordered by id, or `default` for the first page."""
    found = decode_cursor(cursor)
    if found is None:
        return default
    if not re.fullmatch("[0-9]{1,19}", found) or int(found) > MAX_INT64:
        raise _invalid_cursor()
    return int(found)


def _invalid_cursor() -> ArgumentError:
    return ArgumentError("this cursor was not given by a page of this list")
