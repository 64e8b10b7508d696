"""Authentication by access token, or by the key of a server on this machine.

Every request looks its token up, so a revoked token is refused at once, on every instance. While the
database is unavailable, a token that was valid at the last lookup admits its owner as a viewer, to read the
metrics and states that the process knows itself. Everything else needs the database anyway.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import os
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from rota.engine.worker.session import wait_at_most
from rota.errors import DatabaseError, RotaError
from rota.model.access import AccessToken, Caller, Role
from rota.store import tokens
from rota.web.csrf import check_host, is_loopback
from rota.web.responses import HttpError, mount_path

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.store.tokens import StoredToken

log = logging.getLogger("rota")

K = TypeVar("K")
V = TypeVar("V")

MAX_ATTEMPTS_PER_MINUTE = 20
"""Invalid attempts allowed per minute for one token id from one address.

Further attempts are refused without a lookup. The count is per token because all clients behind a proxy
share one address: one client must not lock out the rest.
"""

QUERY_TIMEOUT_SECONDS = 2.0
"""Timeout of a token lookup; after it, the database counts as unavailable.

It is short because a metrics scraper waits hardly longer, and must receive the value of rota_database_up.
"""

MAX_UNKNOWN_LOOKUPS = 2
"""Concurrent lookups of tokens that are not known to be valid: guessing must not load the database."""

MAX_REMEMBERED = 1000
"""Size of the cache of valid tokens, and of the table of invalid attempts."""

PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True, slots=True)
class _KnownToken:
    """A token that was valid at its last lookup."""

    caller: Caller
    expires_at: float | None
    """Monotonic time of this process; None if the token does not expire."""


TOKEN_COOKIE = "rota_token"
"""Cookie in which a browser keeps the token after sign-in."""


class TokenAuthenticator:
    """Authenticates by access token: `Authorization: Bearer rota_…`, or the cookie set at sign-in."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self._known: OrderedDict[bytes, _KnownToken] = OrderedDict()
        self._failures: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        self._unknown_lookups = asyncio.Semaphore(MAX_UNKNOWN_LOOKUPS)

    async def authenticate(self, request: Request) -> Caller:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            text = request.cookies.get(
                TOKEN_COOKIE, ""
            )  # another scheme is meant for a proxy in front
        if not text.strip():
            raise _unauthenticated("no token; send it as Authorization: Bearer TOKEN")
        return await self.identify(request, text.strip())

    async def identify(self, request: Request, text: str) -> Caller:
        """Return the owner of a token. Raise HttpError if the token is invalid."""
        token = AccessToken.parse(text)
        if token is None:
            raise _unauthenticated("the token is invalid")
        if token.digest in self._known:
            caller = await self._look_up(token)
        else:
            self._check_attempts(request, token)
            async with self._unknown_lookups:
                caller = await self._look_up(token)
        if caller is None:
            self._count_failure(request, token)
            raise _unauthenticated("the token is invalid")
        return caller

    async def _look_up(self, token: AccessToken) -> Caller | None:
        found: list[StoredToken | None] = []

        async def query() -> None:
            database = (await self._app.open()).database
            stored = await database.fetch_one(tokens.read(token.id))
            found.append(stored)

        try:
            if not await wait_at_most(query(), QUERY_TIMEOUT_SECONDS):
                return self._remembered_caller(token)
        except DatabaseError:
            return self._remembered_caller(token)
        stored = found[0]
        # Compare also without a stored token, so that the time taken reveals nothing.
        digest = b"\0" * 32 if stored is None else stored.digest
        if not hmac.compare_digest(digest, token.digest) or stored is None:
            self._known.pop(token.digest, None)
            return None
        if stored.state != "active":
            self._known.pop(token.digest, None)
            # Only a caller with the full secret learns the reason.
            raise _unauthenticated(
                f"this token {_rejection(stored)}; create another with `rota tokens create NAME`"
            )
        caller = Caller(f"{stored.name} (token {token.id})", Role.parse(stored.role))
        expires_at = None if stored.expires_in is None else time.monotonic() + stored.expires_in
        _remember(self._known, token.digest, _KnownToken(caller, expires_at))
        if stored.needs_touch:
            await self._record_use(token)
        return caller

    def _remembered_caller(self, token: AccessToken) -> Caller:
        known = self._known.get(token.digest)
        if known is None or (known.expires_at is not None and known.expires_at <= time.monotonic()):
            raise HttpError(
                503,
                "database",
                "the token cannot be checked: the database is unavailable or has no valid schema; "
                "try again",
                {"Retry-After": "1"},
            )
        return Caller(known.caller.name, min(known.caller.role, Role.VIEWER), is_cached=True)

    async def _record_use(self, token: AccessToken) -> None:
        try:
            await (await self._app.open()).database.run(tokens.record_use(token.id))
        except RotaError as error:
            log.warning("the last use of token %s could not be recorded: %s", token.id, error)

    # Limit on invalid attempts

    def _check_attempts(self, request: Request, token: AccessToken) -> None:
        remaining = self._remaining_attempts((_client_address(request), token.id))
        if remaining < 1:
            wait = str(max(1, round((1 - remaining) * 60 / MAX_ATTEMPTS_PER_MINUTE)))
            raise HttpError(
                429,
                "too_many_attempts",
                f"too many requests with the invalid token {token.id} from this address; "
                f"try again in {wait} s",
                {"Retry-After": wait},
            )

    def _count_failure(self, request: Request, token: AccessToken) -> None:
        source = (_client_address(request), token.id)
        remaining = self._remaining_attempts(source) - 1
        if remaining < 1:
            log.warning("%s sent the invalid token %s too often", source[0] or "a client", token.id)
        _remember(self._failures, source, (remaining, time.monotonic()))

    def _remaining_attempts(self, source: tuple[str, str]) -> float:
        remaining, at = self._failures.get(
            source, (float(MAX_ATTEMPTS_PER_MINUTE), time.monotonic())
        )
        return min(
            float(MAX_ATTEMPTS_PER_MINUTE),
            remaining + (time.monotonic() - at) * MAX_ATTEMPTS_PER_MINUTE / 60,
        )


LOCAL_KEY_VARIABLE = "ROTA_LOCAL_KEY"
"""Environment variable with the key of `LocalAccess`. `rota dev` sets it for the dashboard it restarts."""


class LocalAccess:
    """Admits requests from this machine that present the key of this server.

    The key is random and new with each start. It is part of the link that the program prints; opening the
    link stores the key in a cookie. Programs send `Authorization: Bearer KEY`. A request that a proxy on
    this machine forwards looks local, and is refused because it has no key.

    The caller is an administrator, except that it cannot create tokens: a token would outlive the server.
    """

    def __init__(self, hosts: frozenset[str] = frozenset(), key: str | None = None) -> None:
        self._hosts = hosts
        self.key = key or os.environ.get(LOCAL_KEY_VARIABLE) or secrets.token_urlsafe(16)
        self._link_logged = False

    def link(self, address: str, page: str = "/") -> str:
        """Return the link that signs a browser in and leads to a page; `address` has no final slash."""
        return f"{address}{page}?key={self.key}"

    async def authenticate(self, request: Request) -> Caller:
        self.check_is_local(request)
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            text = request.cookies.get(self.cookie_name(request), "")
        if not self.is_key(text.strip()):
            self._log_link(request)
            raise _unauthenticated(
                "open the link that the program printed when it started, or send the key in that link as "
                "Authorization: Bearer KEY"
            )
        return Caller("local", Role.ADMIN, is_local=True)

    def is_key(self, text: str) -> bool:
        return hmac.compare_digest(self.key.encode(), text.encode("utf-8", "replace"))

    @staticmethod
    def cookie_name(request: Request) -> str:
        """Return the name of the cookie. Servers on one host share cookies, so it has the port."""
        server = request.scope.get("server")
        return f"rota_local_{server[1] if server else ''}"

    def _log_link(self, request: Request) -> None:
        """Print the link with the first refusal: an application that mounts the pages prints none."""
        if not self._link_logged and LOCAL_KEY_VARIABLE not in os.environ:
            self._link_logged = True
            address = f"{request.url.scheme}://{request.headers.get('host', '')}"
            log.info("sign in at %s", self.link(address + mount_path(request.scope)))

    def check_is_local(self, request: Request) -> None:
        """Raise HttpError unless the request was sent on this machine, to this machine."""
        check_host(request, self._hosts)
        server, client = request.scope.get("server"), request.client
        is_local = server is not None and is_loopback(server[0]) and client is not None
        if not is_local or client is None or not is_loopback(client.host):
            raise HttpError(
                403,
                "not_local",
                'with auth="local" this is for this machine alone; to reach it from elsewhere, serve it '
                'with auth="tokens" and create one with `rota tokens create NAME`',
            )
        if any(each in request.headers for each in PROXY_HEADERS):
            raise HttpError(
                403,
                "not_local",
                "this request came through a proxy, so its sender is not known; behind a proxy use "
                'auth="tokens"',
            )


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Store a token or key in a cookie that no script reads and no other site uses."""
    response.set_cookie(
        name,
        value,
        path=mount_path(request.scope) or "/",
        secure="https" in (request.url.scheme, request.headers.get("x-forwarded-proto")),
        httponly=True,
        samesite="lax",
    )


def _rejection(stored: StoredToken) -> str:
    return "was revoked" if stored.state == "revoked" else "has expired"


def _unauthenticated(message: str) -> HttpError:
    return HttpError(401, "unauthenticated", message, {"WWW-Authenticate": 'Bearer realm="rota"'})


def _client_address(request: Request) -> str:
    """Return the address that attempts are counted by: an IPv4 address, or the /64 network of an IPv6
    address.
    """
    host = request.client.host if request.client else ""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if found.version == 4:
        return host
    return str(ipaddress.ip_network((found, 64), strict=False))


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > MAX_REMEMBERED:
        cache.popitem(last=False)
