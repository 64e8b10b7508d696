"""Who somebody is: by the token he shows, or by the key of a server on this machine.

A token is looked up each time, so one that was revoked opens nothing from then on, on any instance. While
the database is away a token that was good when it last answered is good for looking, for what a process
can say without it; nothing else can be done then anyway.
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

from rota.engine.life import soon
from rota.errors import DatabaseError, RotaError
from rota.model.access import Caller, Role, Token
from rota.store import tokens
from rota.web.answers import Refused
from rota.web.origins import check_host, is_loopback
from rota.web.requests import root_of

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.store.tokens import Kept

log = logging.getLogger("rota")

K = TypeVar("K")
V = TypeVar("V")

ATTEMPTS = 20
"""Secrets of one token that were tried from one address within a minute and were not good; then the next
are not looked at. By token: behind a proxy all have one address, and one must not lock out the others."""

ANSWER_WITHIN = 2.0
"""Seconds in which the database says whose a token is; one that says nothing is away. Whoever measures us
waits hardly longer, and has to hear that it is."""

AT_ONCE = 2
"""Tokens that were not seen to be good before are looked up so few at a time: whoever tries many takes no
more of the database."""

REMEMBERED = 1000
"""Tokens that were good, and those that were not from an address, that are remembered."""

FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True, slots=True)
class _Good:
    """A token that was good when it was last looked up."""

    caller: Caller
    until: float | None
    """By this process's clock; None: for good."""


COOKIE = "rota_token"
"""Where a browser keeps the token of whoever has logged in."""


class Tokens:
    """Knows people by their tokens: `Authorization: Bearer rota_…`, and browsers by the cookie that they
    were given for one."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self._good: OrderedDict[bytes, _Good] = OrderedDict()
        self._failed: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        self._strangers = asyncio.Semaphore(AT_ONCE)

    async def know(self, request: Request) -> Caller:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            text = request.cookies.get(COOKIE, "")  # whatever else is said is for a proxy before us
        if not text.strip():
            raise _unknown("say who you are: Authorization: Bearer and a token")
        return await self.identify(request, text.strip())

    async def identify(self, request: Request, text: str) -> Caller:
        """Whose token that is. Raises Refused if it is nobody's."""
        token = Token.parse(text)
        if token is None:
            raise _unknown("there is no such token")
        if token.digest in self._good:
            caller = await self._look(token)
        else:
            self._check_attempts(request, token)
            async with self._strangers:
                caller = await self._look(token)
        if caller is None:
            self._count(request, token)
            raise _unknown("there is no such token")
        return caller

    async def _look(self, token: Token) -> Caller | None:
        found: list[Kept | None] = []

        async def ask() -> None:
            database = (await self._app.open()).database
            kept = await database.one(tokens.look(token.id))
            found.append(kept)

        try:
            if not await soon(ask(), ANSWER_WITHIN):
                return self._remember(token)
        except DatabaseError:
            return self._remember(token)
        kept = found[0]
        # Also where there is none: how long it takes tells nothing.
        digest = b"\0" * 32 if kept is None else kept.digest
        if not hmac.compare_digest(digest, token.digest) or kept is None:
            self._good.pop(token.digest, None)
            return None
        if kept.state != "good":
            self._good.pop(token.digest, None)
            # Only who has the whole of it is told.
            raise _unknown(f"this token {_over(kept)}; `rota tokens create` makes another")
        caller = Caller(f"{kept.name} (token {token.id})", Role.named(kept.role))
        until = None if kept.left is None else time.monotonic() + kept.left
        _keep(self._good, token.digest, _Good(caller, until))
        if kept.stale:
            await self._touch(token)
        return caller

    def _remember(self, token: Token) -> Caller:
        good = self._good.get(token.digest)
        if good is None or (good.until is not None and good.until <= time.monotonic()):
            raise Refused(
                503,
                "database",
                "who you are cannot be looked up: the database is away, or not as it should be",
                {"Retry-After": "1"},
            )
        return Caller(good.caller.name, min(good.caller.role, Role.VIEWER), remembered=True)

    async def _touch(self, token: Token) -> None:
        try:
            await (await self._app.open()).database.run(tokens.touch(token.id))
        except RotaError as error:
            log.warning("that token %s is in use could not be noted: %s", token.id, error)

    # Whoever tries one after the other

    def _check_attempts(self, request: Request, token: Token) -> None:
        left = self._left((_address(request), token.id))
        if left < 1:
            wait = str(max(1, round((1 - left) * 60 / ATTEMPTS)))
            raise Refused(
                429,
                "too_many_attempts",
                f"token {token.id} was shown from this address too often and was not good; "
                f"try again in {wait} s",
                {"Retry-After": wait},
            )

    def _count(self, request: Request, token: Token) -> None:
        who = (_address(request), token.id)
        left = self._left(who) - 1
        if left < 1:
            log.warning("%s tries token %s, which is not good", who[0] or "somebody", token.id)
        _keep(self._failed, who, (left, time.monotonic()))

    def _left(self, who: tuple[str, str]) -> float:
        left, at = self._failed.get(who, (float(ATTEMPTS), time.monotonic()))
        return min(float(ATTEMPTS), left + (time.monotonic() - at) * ATTEMPTS / 60)


LOCAL_KEY = "ROTA_LOCAL_KEY"
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
        self.key = key or os.environ.get(LOCAL_KEY) or secrets.token_urlsafe(16)
        self._told = False

    def link(self, address: str, page: str = "/") -> str:
        """Return the link that signs a browser in and leads to a page; `address` has no final slash."""
        return f"{address}{page}?key={self.key}"

    async def know(self, request: Request) -> Caller:
        self.check_place(request)
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            text = request.cookies.get(self.cookie(request), "")
        if not self.is_key(text.strip()):
            self._tell_link(request)
            raise _unknown(
                "open the link that the program printed when it started, or send the key in that link as "
                "Authorization: Bearer KEY"
            )
        return Caller("local", Role.ADMIN, local=True)

    def is_key(self, text: str) -> bool:
        return hmac.compare_digest(self.key.encode(), text.encode("utf-8", "replace"))

    @staticmethod
    def cookie(request: Request) -> str:
        """Return the name of the cookie. Servers on one host share cookies, so it has the port."""
        server = request.scope.get("server")
        return f"rota_local_{server[1] if server else ''}"

    def _tell_link(self, request: Request) -> None:
        """Print the link with the first refusal: an application that mounts the pages prints none."""
        if not self._told and LOCAL_KEY not in os.environ:
            self._told = True
            address = f"{request.url.scheme}://{request.headers.get('host', '')}"
            log.info("sign in at %s", self.link(address + root_of(request.scope)))

    def check_place(self, request: Request) -> None:
        """Raise Refused unless the request was sent on this machine, to this machine."""
        check_host(request, self._hosts)
        server, client = request.scope.get("server"), request.client
        here = server is not None and is_loopback(server[0]) and client is not None
        if not here or client is None or not is_loopback(client.host):
            raise Refused(
                403,
                "not_local",
                'with auth="local" this is for this machine alone; to reach it from elsewhere, serve it '
                'with auth="tokens" and create one with `rota tokens create NAME`',
            )
        if any(each in request.headers for each in FORWARDED):
            raise Refused(
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
        path=root_of(request.scope) or "/",
        secure="https" in (request.url.scheme, request.headers.get("x-forwarded-proto")),
        httponly=True,
        samesite="lax",
    )


def _over(kept: Kept) -> str:
    return "was revoked" if kept.state == "revoked" else "has expired"


def _unknown(message: str) -> Refused:
    return Refused(401, "unauthenticated", message, {"WWW-Authenticate": 'Bearer realm="rota"'})


def _address(request: Request) -> str:
    """Whom attempts are counted against: an address; of IPv6 what one customer has of them."""
    host = request.client.host if request.client else ""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if found.version == 4:
        return host
    return str(ipaddress.ip_network((found, 64), strict=False))


def _keep(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > REMEMBERED:
        kept.popitem(last=False)
