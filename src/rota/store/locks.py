"""Queries for locks and permits: holds with a rising token and an expiry time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Params, Query, no_row, statement

RELEASED_CHANNEL = "rota.locks"
"""Notification channel for released locks; the payload is the name."""


class LockAnswer(msgspec.Struct, frozen=True):
    """Answer to an attempt to acquire: the token, or the current holder."""

    permit: int | None
    token: int | None
    wait_flag_set: bool
    """True if the wait flag is set on the row of every holder."""
    lost_race: bool
    """True if another client created the row at the same moment: ask again."""
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    holder_token: int | None
    """Token of the current holder."""
    held_seconds: float | None
    expires_in: float | None
    """Seconds until the first hold expires."""

    @property
    def is_done(self) -> bool:
        return self.token is not None


class RenewedLock(msgspec.Struct, frozen=True):
    token: int
    renewed: bool | None
    """True if renewed; None if another transaction held the row's lock."""
    is_duplicate: bool
    """True if another instance holds the lock under the same token."""


class ReleasedLockRow(msgspec.Struct, frozen=True):
    held: bool
    awaited: bool


@statement("lock/acquire", LockAnswer)
def acquire(
    name: str,
    permits: int,
    nonce: UUID,
    holder: dict[str, Any],
    ttl: float,
    max_held: float | None,
    *,
    wait: bool,
    earlier_nonces: Sequence[UUID] = (),
) -> Params:
    """Acquire a lock, or one of `permits` permits; 0 is a lock.

    `holder` has the instance, host, pid and label. `nonce` is new for each request; `earlier_nonces` are
    those of the same call that were not answered.
    """
    first_permit, last_permit = (1, permits) if permits else (0, 0)
    return {"first_permit": first_permit, "last_permit": last_permit, **holder}


def renew(instance: UUID, held: Sequence[tuple[str, int, float]]) -> Query[RenewedLock]:
    """Renew locks. Each item of `held` is (name, token, seconds); tokens are unique."""
    names, tokens, ttls = (list(column) for column in zip(*held, strict=True))
    params = {"instance": instance, "names": names, "tokens": tokens, "ttls": ttls}
    return Query("lock/renew", params, RenewedLock)


@statement("lock/release", ReleasedLockRow)
def release(name: str, permit: int, token: int) -> None: ...


@statement("lock/abandon", no_row)
def abandon(name: str, nonces: Sequence[UUID], instance: UUID) -> None: ...


@statement("lock/assert_lock", no_row)
def assert_lock(name: str, token: int) -> None:
    """Raise LockLost if the token is not current. Run this in the user's transaction."""
