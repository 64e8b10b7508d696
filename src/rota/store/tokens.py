"""Tokens as rows: made, listed, looked at when somebody shows one, revoked. Digests only."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.model.access import Role, Token
from rota.store.query import Query


class TokenLine(msgspec.Struct, frozen=True):
    """A token as it is listed."""

    id: str
    name: str
    role: str
    maker: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    used: datetime | None
    """When it was last, to the minute; None: never."""
    state: str
    """good, expired or revoked."""


class Kept(msgspec.Struct, frozen=True):
    """What is known of a token that somebody shows."""

    name: str
    role: str
    digest: bytes
    state: str
    left: float | None
    """Seconds until it expires; None: it does not."""
    stale: bool
    """Its use is to be noted again."""


def create(
    token: Token, name: str, role: Role, lifetime: timedelta | None, who: str
) -> Query[TokenLine]:
    params = {
        "id": token.id,
        "name": name,
        "role": role.word,
        "digest": token.digest,
        "lifetime": lifetime,
        "who": who,
    }
    return Query("token/create", params, TokenLine)


def revoke(id: str, who: str) -> Query[TokenLine]:
    """No row: there is none, or it was revoked before."""
    return Query("token/revoke", {"id": id, "who": who}, TokenLine)


def listed(id: str | None = None, *, over: bool = False, limit: int = 200) -> Query[TokenLine]:
    """Those that open something; `over`: also those that do not any more."""
    return Query("token/list", {"id": id, "over": over, "limit": limit}, TokenLine)


def look(id: str) -> Query[Kept]:
    return Query("token/look", {"id": id}, Kept)


def touch(id: str) -> Query[Any]:
    return Query("token/touch", {"id": id}, lambda: None)
