"""Calls that are made once for a key, and what they came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Query

TOLD = "rota.onces"
"""The channel on which it is said that a call has ended, by its key."""


class Begun(msgspec.Struct, frozen=True):
    """What came of the wish to make a call: a token, a result, or who makes it."""

    token: int | None
    stored: bool
    result: bytes | None
    raced: bool
    """Somebody else was a moment faster; ask again."""
    asked: bool
    """Whether who makes it knows that somebody waits."""
    host: str | None
    pid: int | None
    label: str | None
    since: float | None
    left: float | None
    """Seconds until his time runs out."""

    @property
    def got(self) -> bool:
        """There is nothing to wait for."""
        return self.stored or self.token is not None


class Kept(msgspec.Struct, frozen=True):
    token: int
    kept: bool | None
    """None: somebody has its row locked, so it could not be."""


def begin(
    key: str, nonce: UUID, earlier: Sequence[UUID], who: dict[str, Any], ttl: float, *, wait: bool
) -> Query[Begun]:
    """`who`: instance, host, pid and label. `nonce` is fresh each time; `earlier` are those of the same
    call that were never answered."""
    params = {
        "key": key,
        "nonce": nonce,
        "earlier": list(earlier),
        "ttl": ttl,
        "wait": wait,
        **who,
    }
    return Query("once/begin", params, Begun)


def renew(calls: Sequence[tuple[str, int, float]]) -> Query[Kept]:
    """`calls`: key, token and seconds."""
    keys, tokens, ttls = (list(column) for column in zip(*calls, strict=True))
    return Query("once/renew", {"keys": keys, "tokens": tokens, "ttls": ttls}, Kept)


def finish(key: str, token: int, result: str, keep: float | None) -> Query[bool]:
    """`keep`: seconds; None is for ever."""
    params = {"key": key, "token": token, "result": result, "keep": keep}
    return Query("once/finish", params, bool)


def free(key: str, nonces: Sequence[UUID]) -> Query[bool]:
    return Query("once/free", {"key": key, "nonces": list(nonces)}, bool)
