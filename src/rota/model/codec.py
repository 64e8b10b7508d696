"""Encoding of arguments and results as JSON, and decoding.

Values are JSON only, checked against type hints: no pickle, no class names in the data. Values that
PostgreSQL or JSON cannot hold (NUL, lone surrogates, NaN, excessive nesting) are refused on entry, with the
name of the field. Later they would abort a transaction that contains other work as well.
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
from rota.model.text import single_line

MAX_JSON_BYTES = 1024 * 1024
"""Upper bound of the payload limit, in bytes of JSON."""

MAX_DEPTH = 900
"""Accepted levels of nesting. msgspec's own limit differs between Python versions and is about 1,000 on
3.11; PostgreSQL's is higher."""


def to_builtin(value: Any) -> Any:
    """Convert pydantic models, which msgspec does not support, to built-in values."""
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
_any_decoder = msgspec.json.Decoder()


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=from_builtin)


def encode(value: Any, subject: object, limit: int) -> str:
    """Return `value` as JSON text to store. `subject` names the value in errors."""
    try:
        data = _encoder.encode(value)
    except (
        UnicodeEncodeError,
        RecursionError,
        NotImplementedError,
        TypeError,
        ValueError,
    ) as error:
        raise ArgumentError(
            f"{subject} cannot be stored: {_find_problem(value) or error}"
        ) from None
    # Each level takes at least two bytes, so short documents need no check.
    if len(data) > 2 * MAX_DEPTH and _is_too_deep(data):
        raise ArgumentError(f"{subject} cannot be stored: {_find_problem(value) or _TOO_DEEP}")
    # A cheap test for a possible problem; the full walk runs only if it matches.
    if b"\\u0000" in data or b"null" in data:
        problem = _find_problem(value)
        if problem is not None:
            raise ArgumentError(f"{subject} cannot be stored: {problem}")
    check_size(len(data), subject, limit)
    return data.decode()


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_CHANGES = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _is_too_deep(data: bytes) -> bool:
    """True if a JSON document has more than MAX_DEPTH levels of nesting."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    depth_changes = _STRING.sub(b"", data).translate(_DEPTH_CHANGES, _NOT_BRACKETS)
    return max(accumulate(memoryview(depth_changes).cast("b"))) > MAX_DEPTH


def check_size(size: int, subject: object, limit: int) -> None:
    if size > limit:
        raise PayloadTooLarge(
            f"{subject} would take {_format_bytes(size)}, more than the {_format_bytes(limit)} allowed; "
            "keep it elsewhere and pass a reference, or raise ROTA_PAYLOAD_LIMIT (up to 1 MiB)"
        )


def decode(data: bytes) -> Any:
    return _any_decoder.decode(data)


def describe(error: msgspec.ValidationError | ValueError) -> str:
    """Return msgspec's message with a readable path: "Expected `int`, got `str` (in width)"."""
    if not isinstance(error, msgspec.ValidationError):
        return str(error)  # from pydantic; its message names the field
    message, found, path = str(error).partition(" - at `$")
    path = path.rstrip("`").removeprefix(".")
    return f"{message} (in {path})" if found and path else message


def _find_problem(value: Any) -> str | None:
    """Return a description of the first part that JSON or PostgreSQL cannot hold, with its path; None if
    there is none."""
    for path, part, depth in _walk(value):
        location = f" (in {path})" if path else ""
        if depth > MAX_DEPTH:
            # The full path would be too long to help; its beginning is enough.
            return f"{_TOO_DEEP} (in {_truncated(path)})"
        if isinstance(part, float) and not math.isfinite(part):
            return f"{part} is not a number JSON has{location}"
        if isinstance(part, str):
            if "\x00" in part:
                return f"text contains a NUL character, which PostgreSQL cannot hold{location}"
            if any("\ud800" <= letter <= "\udfff" for letter in part):
                return f"text contains a lone surrogate, which is not valid Unicode{location}"
    return None


def _walk(value: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield every part with its path and depth. Iterative: the value may be too deep for recursion."""
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    while stack:
        path, part, depth = stack.pop()
        yield path, part, depth
        if depth > MAX_DEPTH:
            continue
        if isinstance(part, Mapping):
            for key, each in part.items():
                yield f"a key of {path}" if path else "a key", key, depth
                stack.append((f"{path}.{key}" if path else str(key), each, depth + 1))
        elif isinstance(part, list | tuple | set | frozenset):
            stack.extend((f"{path}[{index}]", each, depth + 1) for index, each in enumerate(part))
        elif not isinstance(part, str | bytes | int | float | type(None)):
            stack.extend(
                (f"{path}.{name}" if path else name, each, depth + 1)
                for name, each in _fields(part)
            )


def _fields(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass, Struct or pydantic model."""
    names = getattr(type(part), "__struct_fields__", None) or getattr(
        type(part), "__dataclass_fields__", None
    )
    if names is None and hasattr(type(part), "model_fields"):
        names = type(part).model_fields
    for name in names or ():
        if hasattr(part, name):
            yield name, getattr(part, name)


def _truncated(path: str) -> str:
    return path if len(path) < 60 else path[:57] + "…"


def _format_bytes(count: int) -> str:
    if count >= 1024 * 1024:
        return f"{count / 1024 / 1024:.1f} MiB"
    return f"{count / 1024:.0f} KiB" if count >= 1024 else f"{count} bytes"


MAX_TRACEBACK_CHARS = 16 * 1024


def encode_error(error: BaseException, attempt: int, traceback: str) -> str:
    """Return an error as the JSON document to store. It always succeeds: characters that cannot be stored
    are escaped."""
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
        "type": escape_unstorable(name),
        "message": escape_unstorable(message[:MAX_TRACEBACK_CHARS]),
        "traceback": escape_unstorable(traceback[-MAX_TRACEBACK_CHARS:]),
        "attempt": attempt,
    }
    return _encoder.encode(document).decode()


MAX_SUMMARY_CHARS = 500
"""Length of an error's message in a log line; the traceback has all of it."""


class StoredError(msgspec.Struct, frozen=True):
    """Error of a task, as stored."""

    type: str = ""
    message: str = ""
    traceback: str = ""
    attempt: int = 0

    @property
    def summary(self) -> str:
        """Type and message on one line for a log, without characters that could forge another line."""
        message = single_line(self.message)
        if len(message) > MAX_SUMMARY_CHARS:
            message = f"{message[:MAX_SUMMARY_CHARS]}…"
        return f"{self.type}: {message}" if message else self.type


_error_decoder = msgspec.json.Decoder(StoredError)


def decode_error(document: bytes | None) -> StoredError:
    return StoredError() if document is None else _error_decoder.decode(document)


def loggable(error: BaseException, traceback: str) -> BaseException | None:
    """Return the error for a log record; None if a handler could not write its traceback."""
    return error if escape_unstorable(traceback) == traceback else None


def error_type(document: str | None) -> str:
    """Return the type in an error document."""
    return str(_any_decoder.decode(document)["type"]) if document else "?"


def escape_unstorable(text: str) -> str:
    """Return the text with escapes for characters that PostgreSQL cannot hold."""
    text = text.replace("\x00", "\\0")
    return text.encode(sys.getdefaultencoding(), "backslashreplace").decode()


def is_storable(text: str, max_chars: int) -> bool:
    """True if the text is not empty nor too long, without NUL and lone surrogates."""
    return 0 < len(text) <= max_chars and escape_unstorable(text) == text
