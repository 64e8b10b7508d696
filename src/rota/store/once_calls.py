"""Calls that are made once for a key, and what they came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Query

FINISHED_CHANNEL = "rota.onces"
"""The channel on which it is said that a call has ended, by its key."""


class OnceStart(msgspec.Struct, frozen=True):
    """What came of the wish to make a call: a token, a result, or who makes it."""

    token: int | None
    has_result: bool
    result: bytes | None
    lost_race: bool
    """Somebody else was a moment faster; ask again."""
    wait_flag_set: bool
    """Whether who makes it knows that somebody waits."""
    host: str | None
    pid: int | None
    label: str | None
    running_seconds: float | None
    expires_in: float | None
    """Seconds until his time runs out."""

    @property
    def is_done(self) -> bool:
        """There is nothing to wait for."""
        return self.has_result or self.token is not None


class RenewedOnce(msgspec.Struct, frozen=True):
    token: int
    renewed: bool | None
    """None: somebody has its row locked, so it could not be."""


def begin(
    key: str,
    nonce: UUID,
    earlier_nonces: Sequence[UUID],
    holder: dict[str, Any],
    ttl: float,
    *,
    wait: bool,
) -> Query[OnceStart]:
    """`who`: instance, host, pid and label. `nonce` is fresh each time; `earlier` are those of the same
    call that were never answered."""
    params = {
        "key": key,
        "nonce": nonce,
        "earlier": list(earlier_nonces),
        "ttl": ttl,
        "wait": wait,
        **holder,
    }
    return Query("once/begin", params, OnceStart)


def renew(calls: Sequence[tuple[str, int, float]]) -> Query[RenewedOnce]:
    """`calls`: key, token and seconds."""
    keys, tokens, ttls = (list(column) for column in zip(*calls, strict=True))
    return Query("once/renew", {"keys": keys, "tokens": tokens, "ttls": ttls}, RenewedOnce)


def finish(key: str, token: int, result: str, retention: float | None) -> Query[bool]:
    """`keep`: seconds; None is for ever."""
    params = {"key": key, "token": token, "result": result, "keep": retention}
    return Query("once/finish", params, bool)


def release(key: str, nonces: Sequence[UUID]) -> Query[bool]:
    return Query("once/free", {"key": key, "nonces": list(nonces)}, bool)
