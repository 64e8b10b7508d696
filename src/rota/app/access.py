"""Tokens, as an app makes and takes them back. Who did so is written down with it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rota.errors import ArgumentError, TokenNotFound
from rota.model import codec
from rota.model.access import Role, Token
from rota.store import tokens
from rota.store.tokens import TokenLine

if TYPE_CHECKING:
    from rota.app.rota import Rota

LONGEST_NAME = 200

LONGEST_LIFE = timedelta(days=3660)


async def create_token(
    app: Rota, name: str, role: Role, lifetime: timedelta | None, by: str
) -> tuple[Token, TokenLine]:
    """A token, whole, for this once: it is kept nowhere. `lifetime` None: it does not expire."""
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or codec.storable(name) != name:
        raise ArgumentError(
            f"the name of a token has 1 to {LONGEST_NAME} characters that can be printed, not "
            f"{name!r:.60}"
        )
    if lifetime is not None and not timedelta(0) < lifetime <= LONGEST_LIFE:
        raise ArgumentError(
            f"a token lives for more than no time and at most {LONGEST_LIFE.days} days, not {lifetime}"
        )
    token = Token.mint()
    database = (await app.open()).database
    [line] = await database.run(tokens.create(token, name, role, lifetime, by))
    return token, line


async def revoke_token(app: Rota, id: str, by: str) -> TokenLine:
    """Have it open nothing from now on. Raises TokenNotFound if there is none, or it was revoked before."""
    database = (await app.open()).database
    revoked = await database.one(tokens.revoke(id, by))
    if revoked is not None:
        return revoked
    known = await database.one(tokens.listed(id, over=True))
    if known is None:
        raise TokenNotFound(
            f"there is no token {id!r:.60}; `rota tokens --all` lists those there are"
        )
    raise TokenNotFound(f"token {id} ({known.name}) was revoked already")
