"""Queries for access tokens: create, list, check and revoke. Only digests are stored."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.access import AccessToken, Role, RoleName
from rota.store.query import Query, no_row, statement


class TokenRow(msgspec.Struct, frozen=True):
    id: str
    name: str
    role: RoleName
    created_by: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    last_used: Annotated[datetime, Meta(description="Time of the last use, to the minute.")] | None
    state: Annotated[str, Meta(description="active, expired or revoked.")]


class StoredToken(msgspec.Struct, frozen=True):
    """Stored token that a request presents."""

    name: str
    role: str
    digest: bytes
    state: str
    expires_in: float | None
    """Seconds until it expires; None if it does not."""
    needs_touch: bool
    """True if the last use has to be recorded again."""


def create(
    token: AccessToken, name: str, role: Role, lifetime: timedelta | None, operator: str
) -> Query[TokenRow]:
    params = {
        "id": token.id,
        "name": name,
        "role": role.text,
        "digest": token.digest,
        "lifetime": lifetime,
        "operator": operator,
    }
    return Query("token/create", params, TokenRow)


@statement("token/revoke", TokenRow)
def revoke(id: str, operator: str) -> None:
    """Revoke a token. No row if it does not exist or was revoked before."""


@statement("token/list", TokenRow)
def list_tokens(id: str | None = None, *, include_inactive: bool = False, limit: int = 200) -> None:
    """Return the valid tokens; with `include_inactive` also expired and revoked ones."""


@statement("token/read", StoredToken)
def read(id: str) -> None: ...


@statement("token/record_use", no_row)
def record_use(id: str) -> None: ...
