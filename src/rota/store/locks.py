"""Locks and permits: holds with a token that only rises and a time at which they end by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.store.query import Query

FREED = "rota.locks"
"""The channel on which it is said that something has become free, by its name."""


class Answer(msgspec.Struct, frozen=True):
    """What came of an attempt to take a lock: a token, or who has it."""

    slot: int | None
    token: int | None
    asked: bool
    """Whether every holder knows that somebody waits."""
    raced: bool
    """Whether somebody else was the first to take it ever, just now: ask again."""
    instance: UUID | None
    host: str | None
    pid: int | None
    label: str | None
    other: int | None
    """The holder's token."""
    since: float | None
    left: float | None
    """Seconds until the first of the holds runs out."""

    @property
    def got(self) -> bool:
        return self.token is not None


class Kept(msgspec.Struct, frozen=True):
    token: int
    kept: bool | None
    """None: somebody has its row locked, so it could not be."""
    doubled: bool
    """Somebody else has it under the same token."""


class Released(msgspec.Struct, frozen=True):
    held: bool
    wanted: bool


def acquire(
    name: str,
    permits: int,
    nonce: UUID,
    who: dict[str, Any],
    ttl: float,
    longest: float | None,
    *,
    wait: bool,
    earlier: Sequence[UUID] = (),
) -> Query[Answer]:
    """`permits`: 0 is a lock; else one of so many. `who`: instance, host, pid and label. `nonce` is fresh
    each time; `earlier` are those of the same call that were never answered."""
    first, last = (1, permits) if permits else (0, 0)
    return Query(
        "lock/acquire",
        {
            "name": name,
            "first": first,
            "last": last,
            "nonce": nonce,
            "earlier": list(earlier),
            "ttl": ttl,
            "longest": longest,
            "wait": wait,
            **who,
        },
        Answer,
    )


def renew(instance: UUID, held: Sequence[tuple[str, int, float]]) -> Query[Kept]:
    """`held`: name, token, which is that of no other, and seconds."""
    names, tokens, ttls = (list(column) for column in zip(*held, strict=True))
    params = {"instance": instance, "names": names, "tokens": tokens, "ttls": ttls}
    return Query("lock/renew", params, Kept)


def release(name: str, slot: int, token: int) -> Query[Released]:
    return Query("lock/release", {"name": name, "slot": slot, "token": token}, Released)


def abandon(name: str, nonces: Sequence[UUID], instance: UUID) -> Query[Any]:
    params = {"name": name, "nonces": list(nonces), "instance": instance}
    return Query("lock/abandon", params, lambda: None)


def assertion(name: str, token: int) -> Query[Any]:
    """To be run in a transaction of the user's."""
    return Query("lock/assert", {"name": name, "token": token}, lambda _: None)
