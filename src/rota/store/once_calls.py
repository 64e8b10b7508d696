"""Queries for `once`: calls that run once per key, with their stored results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Params, Query, statement

FINISHED_CHANNEL = "rota.once_calls"
"""Notification channel for finished calls; the payload is the key."""


class OnceStart(msgspec.Struct, frozen=True):
    """Answer to an attempt to begin a call: a token, a stored result, or the current holder."""

    token: int | None
    has_result: bool
    result: bytes | None
    lost_race: bool
    """True if another client created the row at the same moment: ask again."""
    wait_flag_set: bool
    """True if the wait flag is set on the row."""
    host: str | None
    pid: int | None
    label: str | None
    running_seconds: float | None
    expires_in: float | None
    """Seconds until the holder's lease expires."""

    @property
    def is_done(self) -> bool:
        """True if there is nothing to wait for."""
        return self.has_result or self.token is not None


class RenewedOnce(msgspec.Struct, frozen=True):
    token: int
    renewed: bool | None
    """True if renewed; None if another transaction held the row's lock."""


@statement("once_call/begin", OnceStart)
def begin(
    key: str,
    nonce: UUID,
    earlier_nonces: Sequence[UUID],
    holder: dict[str, Any],
    ttl: float,
    *,
    wait: bool,
) -> Params:
    """Begin a call, unless it has a result or another client runs it.

    `holder` has the instance, host, pid and label. `nonce` is new for each request; `earlier_nonces` are
    those of the same call that were not answered.
    """
    return holder


def renew(calls: Sequence[tuple[str, int, float]]) -> Query[RenewedOnce]:
    """Renew leases. Each item of `calls` is (key, token, seconds)."""
    keys, tokens, ttls = (list(column) for column in zip(*calls, strict=True))
    return Query("once_call/renew", {"keys": keys, "tokens": tokens, "ttls": ttls}, RenewedOnce)


@statement("once_call/finish", bool)
def finish(key: str, token: int, result: str, retention: float | None) -> None:
    """Store the result for `retention` seconds; None keeps it forever."""


@statement("once_call/release", bool)
def release(key: str, nonces: Sequence[UUID]) -> None: ...
