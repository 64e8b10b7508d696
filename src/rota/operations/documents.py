"""Documents: what clients receive for the rows and structs that operations return.

This is the only place that hides values from viewers and converts marked fields (`rota.model.document`).
Ids, lock tokens and terms are 64-bit integers. JavaScript represents only 53 bits exactly, so in JSON they
are strings of digits. Times are ISO 8601 in UTC, durations are seconds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import cache, reduce
from operator import or_
from types import GenericAlias, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.errors import ArgumentError
from rota.model.document import Mark

R = TypeVar("R")
S = TypeVar("S", bound=msgspec.Struct)

MAX_INT64 = 2**63 - 1

_ID = Meta(pattern="^[0-9]{1,19}$", description="A 64-bit integer, as text.")
IdText = Annotated[str, _ID]
"""Id in a request."""
PathId = Annotated[int, Meta(ge=1, le=MAX_INT64)]

Limit = Annotated[int, Meta(ge=1, le=500, description="Maximum number of rows.")]
Cursor = Annotated[
    str,
    Meta(max_length=2800, description="`next` of the previous page."),
]
Next = Annotated[str, Meta(description="Cursor of the next page; null on the last page.")]
Name = Annotated[str, Meta(min_length=1, max_length=200)]

VisibleJson = Annotated[msgspec.Raw, Meta(description="Any JSON. Absent for viewers.")] | UnsetType
"""Input or result of a run."""

DOCUMENT_NAMES = {
    "ClosedAlert": "AlertSubject",
    "Explanation": "ExplanationDocument",
    "ExplanationReason": "ReasonDocument",
    "LogRow": "LogLine",
    "PauseRow": "PausedQueue",
    "PrunableRow": "PrunedRuns",
    "QuarantineRow": "QuarantinedJob",
    "ReleasedLock": "ReleasedLockDocument",
    "RunRow": "RunSummary",
    "Tick": "TickDocument",
    "WorkerDetailRow": "WorkerDocument",
}
"""Names of documents in OpenAPI. Other rows keep their name: `LockRow` is `LockDocument` there."""


def to_document(value: Any, *, visible: bool = True) -> Any:
    """Return the document that a client receives for a struct; without `visible`, that of a viewer."""
    kind: Any = type(value)
    return _conversion(kind).convert(value, visible)


def document_type(kind: Any) -> Any:
    """Return the type of the documents that `to_document` makes of structs of a type."""
    return _conversion(kind).kind


def extend(kind: type[S], row: msgspec.Struct, **extra: Any) -> S:
    """Return a struct with the fields that it has in common with a row, and those of `extra`."""
    common = {each: getattr(row, each) for each in kind.__struct_fields__ if hasattr(row, each)}
    return kind(**common | extra)


class _Conversion(NamedTuple):
    """Type of a value in a document, and the function from the value and the caller's rights to it."""

    kind: Any
    convert: Callable[[Any, bool], Any]
    default: Any = msgspec.NODEFAULT


@cache
def _conversion(hint: Any) -> _Conversion:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments)
    if origin in (Union, UnionType):
        members = [_conversion(each) for each in arguments]
        changed = [each for each in members if each.convert is not _identity]
        if changed:
            return changed[0]._replace(kind=reduce(or_, [each.kind for each in members]))
    if origin is list:
        return _list(hint, _conversion(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    return _Conversion(hint, _identity)


def _annotated(arguments: tuple[Any, ...]) -> _Conversion:
    marks = [each for each in arguments if isinstance(each, Mark)]
    rest = tuple(each for each in arguments if each not in marks)
    if marks:
        return _marked(marks[0], Annotated[rest] if len(rest) > 1 else rest[0])
    inner = _conversion(arguments[0])
    return inner._replace(kind=Annotated[(inner.kind, *rest[1:])])


def _list(hint: Any, item: _Conversion) -> _Conversion:
    if item.convert is _identity:
        return _Conversion(hint, _identity)
    convert = _unless_absent(lambda value, visible: [item.convert(each, visible) for each in value])
    return _Conversion(GenericAlias(list, (item.kind,)), convert)


def _marked(mark: Mark, kind: Any) -> _Conversion:
    match mark:
        case Mark.ID:
            metadata = getattr(kind, "__metadata__", ())
            text = _unless_absent(lambda value, visible: str(value))
            return _Conversion(Annotated[(str, _ID, *metadata)], text)
        case Mark.JSON:
            return _Conversion(msgspec.Raw, lambda value, visible: msgspec.Raw(value))
        case Mark.PAYLOAD:
            return _Conversion(VisibleJson, _visible_json, UNSET)
        case Mark.ERROR:
            return _Conversion(
                ErrorDetail | None, lambda value, visible: error_detail(value, visible=visible)
            )
        case Mark.HIDDEN:
            inner = _conversion(kind)
            return _Conversion(
                inner.kind | UnsetType,
                lambda value, visible: inner.convert(value, visible) if visible else UNSET,
                UNSET,
            )
        case Mark.NULL_FOR_VIEWERS:
            return _Conversion(kind, lambda value, visible: value if visible else None)
        case Mark.INTERNAL:
            raise AssertionError(f"{kind} is internal: it is in no document")


def _struct(kind: type[msgspec.Struct]) -> _Conversion:
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        (each.name, each.encode_name, _conversion(hints[each.name]), each.default)
        for each in msgspec.structs.fields(kind)
        if Mark.INTERNAL not in get_args(hints[each.name])
    ]
    name = DOCUMENT_NAMES.get(kind.__name__) or re.sub("Row$", "Document", kind.__name__)
    is_same = len(fields) == len(kind.__struct_fields__) and name == kind.__name__
    if is_same and all(each.convert is _identity for _, _, each, _ in fields):
        return _Conversion(kind, _identity)
    document = msgspec.defstruct(
        name,
        [
            (key, each.kind, UNSET if UNSET in (each.default, default) else msgspec.NODEFAULT)
            for _, key, each, default in fields
        ],
        kw_only=True,
        frozen=True,
        namespace={"__doc__": kind.__doc__},
    )

    def convert(value: Any, visible: bool) -> Any:
        return document(
            **{key: each.convert(getattr(value, name), visible) for name, key, each, _ in fields}
        )

    return _Conversion(document, _unless_absent(convert))


def _unless_absent(convert: Callable[[Any, bool], Any]) -> Callable[[Any, bool], Any]:
    return lambda value, visible: (
        value if value is None or value is UNSET else convert(value, visible)
    )


def _identity(value: Any, visible: bool) -> Any:
    return value


def _visible_json(value: Any, visible: bool) -> Any:
    if not visible or value is UNSET:
        return UNSET
    if isinstance(value, bytes | None):
        return msgspec.Raw(value or b"null")
    return msgspec.Raw(msgspec.json.encode(value))


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


def cut_page(found: list[R], limit: int, position: str) -> tuple[list[R], str | None]:
    """Return the first `limit` rows, and the cursor of the next page if there are more.

    `position` is the field that orders the rows.
    """
    page = found[:limit]
    next = encode_cursor(str(getattr(page[-1], position))) if len(found) > limit else None
    return page, next


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
