"""Locks and permits: holds with a token that only rises and a time at which they end by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Query

RELEASED_CHANNEL = "rota.locks"
"""The channel on which it is said that something has become free, by its name."""


class LockAnswer(msgspec.Struct, frozen=True):
    """What came of an attempt to take a lock: a token, or who has it."""

    permit: int | None
    token: int | None
    wait_flag_set: bool
    """Whether every holder knows that somebody waits."""
    lost_race: bool
    """Whether somebody else was the first to take it ever, just now: ask again."""
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    holder_token: int | None
    """The holder's token."""
    held_seconds: float | None
    expires_in: float | None
    """Seconds until the first of the holds runs out."""

    @property
    def is_done(self) -> bool:
        return self.token is not None


class RenewedLock(msgspec.Struct, frozen=True):
    token: int
    renewed: bool | None
    """None: somebody has its row locked, so it could not be."""
    is_duplicate: bool
    """Somebody else has it under the same token."""


class ReleasedLockRow(msgspec.Struct, frozen=True):
    held: bool
    awaited: bool


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
) -> Query[LockAnswer]:
    """`permits`: 0 is a lock; else one of so many. `who`: instance, host, pid and label. `nonce` is fresh
    each time; `earlier` are those of the same call that were never answered."""
    first_permit, last_permit = (1, permits) if permits else (0, 0)
    return Query(
        "lock/acquire",
        {
            "name": name,
            "first": first_permit,
            "last": last_permit,
            "nonce": nonce,
            "earlier": list(earlier_nonces),
            "ttl": ttl,
            "longest": max_held,
            "wait": wait,
            **holder,
        },
        LockAnswer,
    )


def renew(instance: UUID, held: Sequence[tuple[str, int, float]]) -> Query[RenewedLock]:
    """`held`: name, token, which is that of no other, and seconds."""
    names, tokens, ttls = (list(column) for column in zip(*held, strict=True))
    params = {"instance": instance, "names": names, "tokens": tokens, "ttls": ttls}
    return Query("lock/renew", params, RenewedLock)


def release(name: str, permit: int, token: int) -> Query[ReleasedLockRow]:
    return Query("lock/release", {"name": name, "slot": permit, "token": token}, ReleasedLockRow)


def abandon(name: str, nonces: Sequence[UUID], instance: UUID) -> Query[Any]:
    params = {"name": name, "nonces": list(nonces), "instance": instance}
    return Query("lock/abandon", params, lambda: None)


def assert_lock(name: str, token: int) -> Query[Any]:
    """To be run in a transaction of the user's."""
    return Query("lock/assert", {"name": name, "token": token}, lambda _: None)
