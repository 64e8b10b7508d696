"""Route table of the API.

An operation is a function whose annotations define its path parameters, its query (`query`), its body
(`body`) and its response. The route, the validation and the OpenAPI document are all derived from them, so
they agree.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rota.errors import DatabaseUnavailable
from rota.model import codec
from rota.model.access import Caller, Role
from rota.store import pg_errors
from rota.store.query import Query
from rota.store.read import runs
from rota.web.auth import caller, require_role
from rota.web.responses import HttpError, json_response

if TYPE_CHECKING:
    from rota.app import Rota

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

PREFIX = "/api/v1"

READ_TIMEOUT_SECONDS = 5.0
"""Statement timeout of a read."""

REQUEST_TIMEOUT_SECONDS = 40.0
"""Timeout of a whole request, including reconnects while the database is unavailable."""

BODY_TIMEOUT_SECONDS = 20.0
"""Timeout for receiving a body."""

BODY_OVERHEAD_BYTES = 1024 * 1024
"""Bytes that a body may have in addition to the payload limit."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The app and the caller of one operation."""

    app: Rota
    caller: Caller

    @property
    def may_see_payloads(self) -> bool:
        """True if the caller may see inputs and results of runs."""
        return self.caller.has_role(Role.OPERATOR)

    async def read(self, *queries: Query[Any]) -> list[Any]:
        """Return the rows of each query, read in one transaction with a statement timeout."""
        database = (await self.app.open()).database
        try:
            [[_, *rows]] = await database.pipeline(
                [[runs.set_timeout(READ_TIMEOUT_SECONDS), *queries]]
            )
        except Exception as error:
            if pg_errors.sqlstate(error) != "57014":
                raise
            raise HttpError(
                503,
                "too_slow",
                f"the database did not find it within {READ_TIMEOUT_SECONDS:g} s; ask for less",
            ) from None
        return rows


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    role: Role
    status: int
    tag: str
    error_statuses: tuple[int, ...]
    handler: Callable[..., Awaitable[Any]]
    summary: str
    params: dict[str, Any] = field(default_factory=dict)
    """Path parameters and their types."""
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    response: Any = None

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def success_statuses(self) -> tuple[int, ...]:
        """Statuses of a successful response; includes 200 if the body has a `key`, for a run that already
        exists.
        """
        found_by_key = self.body is not None and "key" in self.body.__struct_fields__
        return (self.status, 200) if found_by_key else (self.status,)

    def route(self, app: Rota) -> Route:
        async def endpoint(request: Request) -> Response:
            arguments = decode_path(self.params, request)
            if self.query is not None:
                arguments["query"] = decode_query(self.query, request.query_params.multi_items())
            elif request.query_params:
                raise _invalid(f"there is no parameter {next(iter(request.query_params))!r:.60}")
            if self.body is not None:
                arguments["body"] = await _decode_body(self.body, request, app)
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                    document = await self.handler(RequestContext(app, caller(request)), **arguments)
            except TimeoutError:
                raise DatabaseUnavailable(
                    "the request was not completed before the timeout"
                ) from None
            if self.status == 204:
                return Response(status_code=204)
            existed = getattr(document, "created", None) is False
            return json_response(document, self.success_statuses[-1] if existed else self.status)

        endpoint.__name__ = endpoint.__qualname__ = self.name
        guarded = require_role(self.role)(endpoint)
        return Route(PREFIX + self.path, guarded, methods=[self.method], name=self.name)


class Router:
    """Operations in matching order."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.operations: list[Operation] = []

    def add(
        self,
        method: str,
        path: str,
        role: Role,
        *,
        status: int = 200,
        error_statuses: Sequence[int] = (),
    ) -> Callable[[Handler], Handler]:
        """Register an operation; `error_statuses` are those it returns in addition to the common ones."""

        def decorate(handler: Handler) -> Handler:
            hints = get_type_hints(handler, include_extras=True)
            response = hints.pop("return")
            hints = {name: hints[name] for name in inspect.signature(handler).parameters}
            hints.pop("context")
            operation = Operation(
                method,
                path,
                role,
                status,
                self._tag,
                tuple(error_statuses),
                handler,
                " ".join((handler.__doc__ or "").split()),
                query=hints.pop("query", None),
                body=hints.pop("body", None),
                params=hints,
                response=response,
            )
            self.operations.append(operation)
            return handler

        return decorate


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
