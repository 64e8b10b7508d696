"""Authorization of HTTP requests: deny by default.

Every endpoint declares the role it requires with `@require_role(…)`, or is public with `@open_to_all`. A
route without such a declaration raises DefinitionError at startup. An endpoint that is served without a
`Guard` answers 403.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rota.errors import DefinitionError, RotaError, StatementRefused
from rota.model.access import Caller, Role
from rota.web.csrf import SAFE_METHODS, check_content_type, check_origin
from rota.web.responses import HttpError, error_response, http_error_for

Endpoint = Callable[[Request], Awaitable[Response]]
ErrorRenderer = Callable[[Request, HttpError], Response]

OPEN = "open to all"
_RULE = "__rota_rule__"
_GUARD = "rota.guard"
_CALLER = "rota.caller"


class Authenticator(Protocol):
    """Identifies the caller of a request."""

    async def authenticate(self, request: Request) -> Caller:
        """Return the caller. Raise HttpError if the caller is unknown or may not sign in this way."""


class Guard:
    """ASGI middleware that checks the role of each request.

    The caller is identified only when an endpoint requires a role: a public endpoint needs no database.
    With `read_only` a request of any role is refused unless its method is GET, HEAD or OPTIONS.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        routes: Sequence[BaseRoute],
        *,
        read_only: bool = False,
    ) -> None:
        for _ in route_roles(routes):  # a route without a rule raises
            pass
        self._app = app
        self.authenticator = authenticator
        self.read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            try:
                check_origin(Request(scope))
            except HttpError as error:
                await error_response(error)(scope, receive, send)
            else:
                await self._app({**scope, _GUARD: self}, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def authorize(self, request: Request, role: Role) -> Caller:
        """Return the caller. Raise HttpError if the caller's role is below `role`."""
        caller = await self.authenticator.authenticate(request)
        if self.read_only and request.method not in SAFE_METHODS:
            raise HttpError(
                403,
                "read_only",
                "this site is read-only; use one that is served without --read-only",
            )
        if not caller.has_role(role) and caller.is_cached:
            raise HttpError(
                503,
                "database",
                f"this action needs the role {role.text}, which cannot be checked: the database is "
                "unavailable; try again",
                {"Retry-After": "1"},
            )
        if not caller.has_role(role):
            raise HttpError(
                403,
                "forbidden",
                f"this action needs the role {role.text}; {caller.name} has the role {caller.role.text}",
            )
        request.scope[_CALLER] = caller
        return caller


def require_role(
    role: Role, render_error: ErrorRenderer | None = None
) -> Callable[[Endpoint], Endpoint]:
    """Require at least this role for an endpoint; `caller(request)` then returns the caller.

    `render_error` renders the response to a refused or failed request. The default is JSON.
    """

    def render(request: Request, error: HttpError) -> Response:
        return error_response(error) if render_error is None else render_error(request, error)

    def decorate(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            try:
                await guard(request).authorize(request, role)
                check_content_type(request)
                return await endpoint(request)
            except HttpError as error:
                return render(request, error)
            except StatementRefused:
                raise  # an internal error: its message is logged, not sent
            except RotaError as error:
                return render(request, http_error_for(error))

        setattr(guarded, _RULE, role)
        return guarded

    return decorate


def open_to_all(endpoint: Endpoint) -> Endpoint:
    """Make an endpoint public: it needs no authentication."""

    @wraps(endpoint)
    async def opened(request: Request) -> Response:
        try:
            check_content_type(request)
            return await endpoint(request)
        except HttpError as error:
            return error_response(error)

    setattr(opened, _RULE, OPEN)
    return opened


def guard(request: Request) -> Guard:
    """Return the guard in front of this endpoint. Raise HttpError if there is none."""
    found = request.scope.get(_GUARD)
    if not isinstance(found, Guard):
        raise HttpError(
            403, "forbidden", "this endpoint is served without a guard; mount the site as a whole"
        )
    return found


def caller(request: Request) -> Caller:
    """Return the caller of a request to an endpoint that requires a role."""
    found: Caller = request.scope[_CALLER]
    return found


def required_role(endpoint: Any) -> Role | None:
    """Return the least role an endpoint requires, or None if it is public.

    Raise DefinitionError if the endpoint declares neither.
    """
    rule = getattr(endpoint, _RULE, None)
    if rule is None:
        name = getattr(endpoint, "__qualname__", repr(endpoint))
        raise DefinitionError(
            f"the endpoint {name} has no access rule: decorate it with @require_role(Role.VIEWER),"
            " with another role, or with @open_to_all"
        )
    return None if rule == OPEN else rule


def route_roles(
    routes: Sequence[BaseRoute], prefix: str = ""
) -> Iterator[tuple[str, str, Role | None]]:
    """Yield method, path and least role of each route. Raise DefinitionError for a route without a
    declaration.
    """
    for route in routes:
        if isinstance(route, Mount) and route.routes:
            yield from route_roles(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            rule = required_role(route.endpoint)
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield method, prefix + route.path, rule
        else:
            raise DefinitionError(
                f"{route!r} is neither a route nor a mount of routes, so it has no access rule"
            )
