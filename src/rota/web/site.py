"""All that Rota serves over HTTP, as one ASGI app: health, metrics, the API. Mount it in yours, or serve it
on a port of its own.

Nobody is let in unknown, unless it is said, and then only from this very machine. No page of another origin
can have a browser change anything. An answer is never kept or framed, an error is JSON and says what to do.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

try:
    from starlette.applications import Starlette
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"rota.web needs {error.name}, which is not installed: pip install 'rota[web]'",
        name=error.name,
    ) from None
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.errors import SettingsError
from rota.web.answers import Refused, refusal
from rota.web.auth import Doorman, Guard
from rota.web.doorman import Nobody, Tokens
from rota.web.origins import is_loopback

if TYPE_CHECKING:
    from rota.app import Rota

log = logging.getLogger("rota")

Auth = Literal["tokens", "none"]
Part = Literal["health", "api"]

PARTS: tuple[Part, ...] = ("health", "api")

HEADERS = {
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
    auth: Auth | Doorman = "tokens",
    bind: str | None = None,
    hosts: Iterable[str] = (),
    parts: Sequence[Part] = PARTS,
) -> ASGIApp:
    """What Rota serves, behind its guard.

    auth   "tokens" (`rota tokens create`); "none": whoever is on this machine; or whoever tells who asks,
           with `async def know(request) -> Caller`
    bind   the address it is served on, where that is known: without authentication it must be one of this
           machine alone; where it is not known, each request is looked at
    hosts  without authentication: further names this machine goes by
    parts  "health" (with metrics, autoscale and drain) and "api"
    """
    if bind is not None:
        check_bind(bind, auth)
    doorman: Doorman
    if auth == "tokens":
        doorman = Tokens(app)
    elif auth == "none":
        doorman = Nobody(frozenset(each.lower() for each in hosts))
    elif isinstance(auth, str):
        raise SettingsError(f'auth is "tokens" or "none", or tells who asks, not {auth!r}')
    else:
        doorman = auth
    routes: list[BaseRoute] = [route for part in parts for route in _ROUTES[part](app)]
    inner = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    inner.router.redirect_slashes = False
    return _Sealed(Guard(inner, doorman, routes))


def check_bind(host: str, auth: Auth | Doorman) -> None:
    """Refuse to serve others what nobody guards."""
    if auth == "none" and not is_loopback(host):
        raise SettingsError(
            f"{host or 'every address'} can be reached from other machines, and without authentication "
            "everybody there could do everything: serve it on 127.0.0.1, or with --auth tokens, and make "
            "one with `rota tokens create NAME`"
        )


def _health(app: Rota) -> Sequence[BaseRoute]:
    from rota.web import health

    return health.routes(app)


def _api(app: Rota) -> Sequence[BaseRoute]:
    from rota.web import api

    return api.routes(app)


_ROUTES: dict[Part, Callable[[Rota], Sequence[BaseRoute]]] = {"health": _health, "api": _api}


class _Sealed:
    """Puts on every answer what keeps it from being stored, framed or taken for something else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def sealing(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, sealing)
        except Exception:
            # Answered, it was logged without what it says; a server would log all of it.
            if not answered:
                raise


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, message = _WORDS.get(error.status_code, ("refused", str(error.detail)))
    return refusal(Refused(error.status_code, code, message, error.headers))


_WORDS = {
    404: ("not_found", "there is nothing here; /api/v1/openapi.json says what there is"),
    405: ("wrong_method", "this cannot be asked of it; the header Allow says what can"),
}


def _failed(request: Request, error: Exception) -> Response:
    # Not what the error says: that may be what somebody sent.
    where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    log.error("%s %s: %s\n%s", request.method, request.url.path, type(error).__name__, where)
    return refusal(Refused(500, "internal", "this went wrong, and was logged"))
