"""Access tokens: create and revoke them, with the operator in the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rota.errors import ArgumentError, TokenNotFound
from rota.model import codec
from rota.model.access import AccessToken, Role
from rota.store import tokens
from rota.store.tokens import TokenRow

if TYPE_CHECKING:
    from rota.app.rota import Rota

MAX_NAME_CHARS = 200

MAX_LIFETIME = timedelta(days=3660)


async def create_access_token(
    app: Rota, name: str, role: Role, lifetime: timedelta | None, by: str
) -> tuple[AccessToken, TokenRow]:
    """Create a token and return it in plain text, which is not stored. Without `lifetime` it does not
    expire."""
    if not codec.is_storable(name, MAX_NAME_CHARS) or not name.isprintable():
        raise ArgumentError(
            f"the name of a token has 1 to {MAX_NAME_CHARS} characters that can be printed, not "
            f"{name!r:.60}"
        )
    if lifetime is not None and not timedelta(0) < lifetime <= MAX_LIFETIME:
        raise ArgumentError(
            f"a token lives for more than no time and at most {MAX_LIFETIME.days} days, not {lifetime}"
        )
    token = AccessToken.generate()
    database = (await app.open()).database
    [row] = await database.run(tokens.create(token, name, role, lifetime, by))
    return token, row


async def revoke_access_token(app: Rota, id: str, by: str) -> TokenRow:
    """Revoke a token at once. Raise TokenNotFound if it does not exist or is already revoked."""
    database = (await app.open()).database
    revoked = await database.fetch_one(tokens.revoke(id, by))
    if revoked is not None:
        return revoked
    existing = await database.fetch_one(tokens.list_tokens(id, include_inactive=True))
    if existing is None:
        raise TokenNotFound(
            f"there is no token {id!r:.60}; `rota tokens --all` lists those there are"
        )
    raise TokenNotFound(f"token {id} ({existing.name}) was revoked already")
