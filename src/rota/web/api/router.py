"""HTTP routes of the operations: parameters are decoded and checked by the operation's declaration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rota.errors import ArgumentError, DatabaseUnavailable
from rota.operations.arguments import decode_body, decode_params, decode_query
from rota.operations.declare import CALL_TIMEOUT_SECONDS, Operation, OperationContext
from rota.web.auth import caller, require_role
from rota.web.responses import HttpError, json_response

if TYPE_CHECKING:
    from rota.app import Rota

PREFIX = "/api/v1"

BODY_TIMEOUT_SECONDS = 20.0
"""Timeout for receiving a body."""

BODY_OVERHEAD_BYTES = 1024 * 1024
"""Bytes that a body may have in addition to the payload limit."""


def route(operation: Operation[Any], app: Rota) -> Route:
    async def endpoint(request: Request) -> Response:
        arguments = decode_params(operation.params, request.path_params)
        if operation.query is not None:
            arguments["query"] = decode_query(operation.query, request.query_params.multi_items())
        elif request.query_params:
            raise ArgumentError(f"there is no parameter {next(iter(request.query_params))!r:.60}")
        if operation.body is not None:
            data = await read_body(request, BODY_OVERHEAD_BYTES + app.settings.payload_limit)
            arguments["body"] = decode_body(operation.body, data)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
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
