"""Arguments of an operation, decoded and checked by its declaration.

HTTP sends them in path, query and body; an MCP client sends one object. Both are refused for the same
reasons, with the same errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.errors import ArgumentError
from rota.model import codec
from rota.operations.declare import Operation
from rota.operations.refusals import Malformed, NotFound


def decode_params(kinds: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that name the object. Raise NotFound if one is invalid."""
    found = {}
    for name, kind in kinds.items():
        try:
            found[name] = msgspec.convert(given[name], kind, strict=False)
        except msgspec.ValidationError:
            # An invalid name or number cannot exist.
            raise NotFound(f"there is no {name} {given[name]!r:.60}") from None
        _check_text(name, found[name])
    return found


def decode_query(kind: type[msgspec.Struct], items: Iterable[tuple[str, Any]]) -> msgspec.Struct:
    """Return the query as a struct. Raise ArgumentError if a field is invalid or given twice."""
    given: dict[str, Any] = {}
    for name, value in items:
        if name in given:
            raise ArgumentError(f"{name!r:.60} is there twice")
        given[name] = value
        _check_text(name, value)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ArgumentError(codec.describe(error)) from None


def decode_body(kind: type[msgspec.Struct], data: bytes) -> msgspec.Struct:
    """Return the JSON body as a struct. Raise Malformed or ArgumentError."""
    try:
        found = msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise ArgumentError(codec.describe(error)) from None
    except RecursionError:
        raise ArgumentError("the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    for name in found.__struct_fields__:
        _check_text(name, getattr(found, name))
    return found


def decode_object(operation: Operation[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operation whose caller sends all of them in one object."""
    if missing := [name for name in operation.params if name not in given]:
        raise ArgumentError(f"{operation.name} needs {missing[0]!r}")
    arguments = decode_params(operation.params, given)
    rest = {name: value for name, value in given.items() if name not in operation.params}
    if operation.query is not None:
        arguments["query"] = decode_query(operation.query, rest.items())
    elif operation.body is not None:
        try:
            data = msgspec.json.encode(rest)
        except (UnicodeEncodeError, RecursionError):
            raise ArgumentError("the arguments cannot be written as JSON") from None
        arguments["body"] = decode_body(operation.body, data)
    elif rest:
        raise ArgumentError(f"there is no parameter {next(iter(rest))!r:.60}")
    return arguments


def _check_text(name: str, value: object) -> None:
    if isinstance(value, str) and ("\0" in value or codec.escape_unstorable(value) != value):
        raise ArgumentError(f"{name!r:.60} holds a NUL or a lone surrogate, which is no text")
