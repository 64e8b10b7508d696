"""Arguments and results, to JSON and back.

JSON only, checked against the type hints: never pickle, never the name of a class in the data. What
PostgreSQL or JSON cannot hold (NUL, lone surrogates, NaN, endless nesting) is refused where it enters,
with the name of the field, because further in it would abort somebody else's transaction.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import msgspec

from rota.errors import ArgumentError, PayloadTooLarge

LARGEST = 1024 * 1024
"""Bytes of JSON, at the very most."""

DEEPEST = 900
"""Levels of nesting that are accepted. msgspec's own bound differs between versions of Python, and is about
1,000 on 3.11; PostgreSQL's is higher."""


def to_builtin(value: Any) -> Any:
    """What msgspec does not know by itself: pydantic's models."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return dump(value, mode="json")
    raise NotImplementedError(
        f"{type(value).__name__} has no form in JSON; use a dataclass, a msgspec.Struct, "
        "a pydantic model or plain values"
    )


def from_builtin(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{kind.__name__} cannot be read from JSON")
    return validate(value)


_encoder = msgspec.json.Encoder(enc_hook=to_builtin)
_any = msgspec.json.Decoder()


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=from_builtin)


def encode(value: Any, what: object, limit: int) -> str:
    """JSON text for storing. `what` is named in errors."""
    try:
        data = _encoder.encode(value)
    except (
        UnicodeEncodeError,
        RecursionError,
        NotImplementedError,
        TypeError,
        ValueError,
    ) as error:
        raise ArgumentError(f"{what} cannot be stored: {_fault(value) or error}") from None
    # Each level takes two bytes, so that short documents need no look.
    if len(data) > 2 * DEEPEST and _is_too_deep(data):
        raise ArgumentError(f"{what} cannot be stored: {_fault(value) or _TOO_DEEP}")
    # A hint that something may be wrong, for next to nothing; the walk that knows runs only then.
    if b"\\u0000" in data or b"null" in data:
        fault = _fault(value)
        if fault is not None:
            raise ArgumentError(f"{what} cannot be stored: {fault}")
    check_size(len(data), what, limit)
    return data.decode()


_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _is_too_deep(data: bytes) -> bool:
    """True if a JSON document has more than DEEPEST levels of nesting."""
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False
    steps = _STRING.sub(b"", data).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b"))) > DEEPEST


def check_size(size: int, what: object, limit: int) -> None:
    if size > limit:
        raise PayloadTooLarge(
            f"{what} would take {_size(size)}, more than the {_size(limit)} allowed; keep it "
            "elsewhere and pass a reference, or raise ROTA_PAYLOAD_LIMIT (up to 1 MiB)"
        )


def decode(data: bytes) -> Any:
    return _any.decode(data)


def describe(error: msgspec.ValidationError) -> str:
    """msgspec's message with the path said in words: "Expected `int`, got `str` (in width)"."""
    message, found, path = str(error).partition(" - at `$")
    path = path.rstrip("`").removeprefix(".")
    return f"{message} (in {path})" if found and path else message


def _fault(value: Any) -> str | None:
    """What JSON or PostgreSQL cannot hold in this value, and where."""
    for path, part, depth in _walk(value):
        where = f" (in {path})" if path else ""
        if depth > DEEPEST:
            # The path of something this deep helps nobody: its beginning does.
            return f"{_TOO_DEEP} (in {_head(path)})"
        if isinstance(part, float) and not math.isfinite(part):
            return f"{part} is not a number JSON has{where}"
        if isinstance(part, str):
            if "\x00" in part:
                return f"text contains a NUL character, which PostgreSQL cannot hold{where}"
            if any("\ud800" <= letter <= "\udfff" for letter in part):
                return f"text contains a lone surrogate, which is not valid Unicode{where}"
    return None


def _walk(value: Any) -> Iterator[tuple[str, Any, int]]:
    """Every part with its path. Iterative: what is being looked for may be too deep to recurse into."""
    pile: list[tuple[str, Any, int]] = [("", value, 0)]
    while pile:
        path, part, depth = pile.pop()
        yield path, part, depth
        if depth > DEEPEST:
            continue
        if isinstance(part, Mapping):
            for key, each in part.items():
                yield f"a key of {path}" if path else "a key", key, depth
                pile.append((f"{path}.{key}" if path else str(key), each, depth + 1))
        elif isinstance(part, list | tuple | set | frozenset):
            pile.extend((f"{path}[{index}]", each, depth + 1) for index, each in enumerate(part))
        elif not isinstance(part, str | bytes | int | float | type(None)):
            pile.extend(
                (f"{path}.{name}" if path else name, each, depth + 1)
                for name, each in _fields(part)
            )


def _fields(part: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass, Struct or pydantic model."""
    names = getattr(type(part), "__struct_fields__", None) or getattr(
        type(part), "__dataclass_fields__", None
    )
    if names is None and hasattr(type(part), "model_fields"):
        names = type(part).model_fields
    for name in names or ():
        if hasattr(part, name):
            yield name, getattr(part, name)


def _head(path: str) -> str:
    return path if len(path) < 60 else path[:57] + "…"


def _size(count: int) -> str:
    if count >= 1024 * 1024:
        return f"{count / 1024 / 1024:.1f} MiB"
    return f"{count / 1024:.0f} KiB" if count >= 1024 else f"{count} bytes"


TRACEBACK_LIMIT = 16 * 1024


def error_document(error: BaseException, attempt: int, traceback: str) -> str:
    """An error as it is kept. Always possible: what cannot be stored is replaced, not raised."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else (f"{kind.__module__}.{kind.__qualname__}")
    )
    try:
        message = str(error)
    except Exception:
        message = "its message could not be had"
    document = {
        "type": storable(name),
        "message": storable(message[:TRACEBACK_LIMIT]),
        "traceback": storable(traceback[-TRACEBACK_LIMIT:]),
        "attempt": attempt,
    }
    return _encoder.encode(document).decode()


class ErrorDocument(msgspec.Struct, frozen=True):
    """A task's own error, as it was kept."""

    type: str = ""
    message: str = ""
    traceback: str = ""
    attempt: int = 0


_error = msgspec.json.Decoder(ErrorDocument)


def read_error(document: bytes | None) -> ErrorDocument:
    return ErrorDocument() if document is None else _error.decode(document)


def error_type(document: str | None) -> str:
    """The type in an error document: what may be logged. A message may hold what must not be."""
    return str(_any.decode(document)["type"]) if document else "?"


def storable(text: str) -> str:
    """Text with everything PostgreSQL cannot hold made visible."""
    text = text.replace("\x00", "\\0")
    return text.encode(sys.getdefaultencoding(), "backslashreplace").decode()
