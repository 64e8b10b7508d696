"""Tokens as rows: made, listed, looked at when somebody shows one, revoked. Digests only."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.model.access import AccessToken, Role
from rota.store.query import Query


class TokenRow(msgspec.Struct, frozen=True):
    """A token as it is listed."""

    id: str
    name: str
    role: str
    created_by: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    last_used: datetime | None
    """When it was last, to the minute; None: never."""
    state: str
    """good, expired or revoked."""


class StoredToken(msgspec.Struct, frozen=True):
    """What is known of a token that somebody shows."""

    name: str
    role: str
    digest: bytes
    state: str
    expires_in: float | None
    """Seconds until it expires; None: it does not."""
    needs_touch: bool
    """Its use is to be noted again."""


def create(
    token: AccessToken, name: str, role: Role, lifetime: timedelta | None, operator: str
) -> Query[TokenRow]:
    params = {
        "id": token.id,
        "name": name,
        "role": role.text,
        "digest": token.digest,
        "lifetime": lifetime,
        "who": operator,
    }
    return Query("token/create", params, TokenRow)


def revoke(id: str, operator: str) -> Query[TokenRow]:
    """No row: there is none, or it was revoked before."""
    return Query("token/revoke", {"id": id, "who": operator}, TokenRow)


def list_tokens(
    id: str | None = None, *, include_inactive: bool = False, limit: int = 200
) -> Query[TokenRow]:
    """Those that open something; `over`: also those that do not any more."""
    return Query("token/list", {"id": id, "over": include_inactive, "limit": limit}, TokenRow)


def read(id: str) -> Query[StoredToken]:
    return Query("token/look", {"id": id}, StoredToken)


def record_use(id: str) -> Query[Any]:
    return Query("token/touch", {"id": id}, lambda: None)
