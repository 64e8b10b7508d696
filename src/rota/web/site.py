"""ASGI app with everything Rota serves: health, metrics, the API and the dashboard.

Mount it in an application, or serve it on its own port. Requests are authenticated, except for the public
endpoints (health checks, sign-in, static files). With auth="local" only this machine is admitted. No page
of another origin can change anything. Responses are not stored or framed. Errors are JSON, with a remedy in
the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal

try:
    from starlette.applications import Starlette
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"rota.web needs {error.name}, which is not installed: pip install 'pgrota[web]'",
        name=error.name,
    ) from None
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.errors import SettingsError
from rota.store.query import load_all
from rota.web.auth import Authenticator, Guard
from rota.web.csrf import is_loopback
from rota.web.responses import HttpError, error_response, log_failure
from rota.web.tokens_auth import LocalAccess, TokenAuthenticator

if TYPE_CHECKING:
    from rota.app import Rota

Auth = Literal["tokens", "local"]
Part = Literal["health", "api", "dashboard"]

DEFAULT_PARTS: tuple[Part, ...] = ("health", "api")
ALL_PARTS: tuple[Part, ...] = (*DEFAULT_PARTS, "dashboard")

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def site(
    app: Rota,
    *,
    auth: Auth | Authenticator = "tokens",
    bind: str | None = None,
    hosts: Iterable[str] = (),
    parts: Sequence[Part] = DEFAULT_PARTS,
    read_only: bool = False,
) -> ASGIApp:
    """Return the ASGI app, behind its guard.

    auth   "tokens" (`rota tokens create`); "local": requests from this machine with the key that is
           printed (`LocalAccess`); or an object with `async def authenticate(request) -> Caller`
    bind   the address it is served on, if known; with "local" it must be a loopback address. If it is
           None, each request is checked
    hosts  with "local": further names of this machine
    parts  "health" (with metrics, autoscale and drain), "api", and "dashboard", which needs the API
    read_only  refuse every request that changes something
    """
    load_all(app.settings.schema)
    if bind is not None:
        check_bind(bind, auth)
    authenticator: Authenticator
    if auth == "tokens":
        authenticator = TokenAuthenticator(app)
    elif auth == "local":
        authenticator = LocalAccess(frozenset(each.lower() for each in hosts))
    elif isinstance(auth, str):
        raise SettingsError(
            f'auth must be "tokens", "local" or an authenticator object, not {auth!r}'
        )
    else:
        authenticator = auth
    if "dashboard" in parts and "api" not in parts:
        raise SettingsError('the dashboard needs the API: use parts=("api", "dashboard")')
    # The module of a part is loaded only if it is served.
    modules = [import_module(f"rota.web.{part}") for part in parts]
    routes: list[BaseRoute] = [route for module in modules for route in module.routes(app)]
    inner = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _on_http_exception, Exception: _on_exception},
    )
    inner.router.redirect_slashes = False
    inner.state.has_pages = "dashboard" in parts
    return _SecurityHeaders(Guard(inner, authenticator, routes, read_only=read_only))


def check_bind(host: str, auth: Auth | Authenticator) -> None:
    """Raise SettingsError for "local" access on an address that other machines can reach."""
    if (auth == "local" or isinstance(auth, LocalAccess)) and not is_loopback(host):
        raise SettingsError(
            f"{host or 'every address'} can be reached from other machines, and --auth local is for this "
            "machine alone: serve it on 127.0.0.1, or with --auth tokens, and create a token with "
            "`rota tokens create NAME`"
        )


class _SecurityHeaders:
    """Middleware that adds SECURITY_HEADERS, so that a response is not stored, framed or sniffed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal response_started
            if message["type"] == "http.response.start":
                response_started = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            # An answered error was already logged without its message; a server would log the message too.
            if not response_started:
                raise


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, message = _MESSAGES.get(error.status_code, ("refused", str(error.detail)))
    return _error_page_or_json(request, HttpError(error.status_code, code, message, error.headers))


def _error_page_or_json(request: Request, error: HttpError) -> Response:
    """Return an HTML page if the dashboard is served and the client accepts HTML, otherwise JSON."""
    if request.app.state.has_pages and "text/html" in request.headers.get("accept", ""):
        from rota.web.dashboard.router import error_page

        if error.code == "not_found":
            error = HttpError(404, error.code, "the dashboard has no page at this address")
        return error_page(request, error)
    return error_response(error)


_MESSAGES = {
    404: ("not_found", "this address does not exist; /api/v1/openapi.json lists all addresses"),
    405: (
        "wrong_method",
        "this method is not allowed here; the header Allow lists the allowed methods",
    ),
}


def _on_exception(request: Request, error: Exception) -> Response:
    log_failure(request.method, request.url.path, error)
    return _error_page_or_json(
        request, HttpError(500, "internal", "internal error; see the server's log")
    )
