"""HTTP routes of the operations: parameters are decoded and checked by the operation's declaration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rota.errors import DatabaseUnavailable
from rota.model import codec
from rota.operations.declare import Operation, OperationContext
from rota.web.auth import caller, require_role
from rota.web.responses import HttpError, json_response

if TYPE_CHECKING:
    from rota.app import Rota

PREFIX = "/api/v1"

REQUEST_TIMEOUT_SECONDS = 40.0
"""Timeout of a whole request, including reconnects while the database is unavailable."""

BODY_TIMEOUT_SECONDS = 20.0
"""Timeout for receiving a body."""

BODY_OVERHEAD_BYTES = 1024 * 1024
"""Bytes that a body may have in addition to the payload limit."""


def route(operation: Operation[Any], app: Rota) -> Route:
    async def endpoint(request: Request) -> Response:
        arguments = decode_path(operation.params, request)
        if operation.query is not None:
            arguments["query"] = decode_query(operation.query, request.query_params.multi_items())
        elif request.query_params:
            raise _invalid(f"there is no parameter {next(iter(request.query_params))!r:.60}")
        if operation.body is not None:
            arguments["body"] = await _decode_body(operation.body, request, app)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                context = OperationContext(app, caller(request))
                document = await operation.perform(context, **arguments)
        except TimeoutError:
            raise DatabaseUnavailable("the request was not completed before the timeout") from None
        if operation.status == 204:
            return Response(status_code=204)
        existed = getattr(document, "created", None) is False
        status = operation.success_statuses[-1] if existed else operation.status
        return json_response(document, status)

    endpoint.__name__ = endpoint.__qualname__ = operation.name
    guarded = require_role(operation.role)(endpoint)
    return Route(PREFIX + operation.path, guarded, methods=[operation.method], name=operation.name)


def decode_path(params: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Return the path parameters, converted to their types. Raise HttpError if one is invalid."""
    found = {}
    for name, kind in params.items():
        given = request.path_params[name]
        try:
            found[name] = msgspec.convert(given, kind, strict=False)
        except msgspec.ValidationError:
            # An invalid name or number cannot exist.
            raise HttpError(404, "not_found", f"there is no {name} {given!r:.60}") from None
        _check_text(name, found[name])
    return found


def decode_query(kind: type[msgspec.Struct], items: Iterable[tuple[str, str]]) -> msgspec.Struct:
    """Return the query parameters as a struct. Raise HttpError if one is invalid."""
    given: dict[str, str] = {}
    for name, value in items:
        if name in given:
            raise _invalid(f"{name!r:.60} is there twice")
        given[name] = value
        _check_text(name, value)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(codec.describe(error)) from None


async def _decode_body(kind: type[msgspec.Struct], request: Request, app: Rota) -> msgspec.Struct:
    data = await read_body(request, BODY_OVERHEAD_BYTES + app.settings.payload_limit)
    try:
        found = msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _invalid(codec.describe(error)) from None
    except RecursionError:
        raise _invalid("the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, "malformed", f"the body is not JSON: {error}") from None
    for name in found.__struct_fields__:
        _check_text(name, getattr(found, name))
    return found


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body. Raise HttpError if it exceeds `limit` bytes or BODY_TIMEOUT_SECONDS."""
    content_length = request.headers.get("content-length", "")
    if content_length.isdecimal() and int(content_length) > limit:
        raise _too_large(limit)
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise HttpError(
            408, "too_slow", f"the body did not arrive within {BODY_TIMEOUT_SECONDS:g} s"
        ) from None
    except ClientDisconnect:
        raise HttpError(400, "malformed", "the body is incomplete") from None
    return bytes(data)


def _too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        "too_large",
        f"a body has at most {limit:,} bytes; keep big things elsewhere and pass a reference to them",
        {"Connection": "close"},
    )


def _check_text(name: str, value: object) -> None:
    if isinstance(value, str) and ("\0" in value or codec.escape_unstorable(value) != value):
        raise _invalid(f"{name!r:.60} holds a NUL or a lone surrogate, which is no text")


def _invalid(message: str) -> HttpError:
    return HttpError(422, "invalid", message)
