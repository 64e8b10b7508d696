"""Timers: what is asleep and due moves to ready."""

from __future__ import annotations

import msgspec

from rota.store.query import Query


class Woken(msgspec.Struct, frozen=True):
    count: int
    queues: list[str]
    next: float | None
    """Seconds until the next one is due; None: nothing sleeps."""
    schedule: float | None
    """Seconds until the next schedule is; None: there is none."""


def wake(limit: int) -> Query[Woken]:
    return Query("timer/wake", {"limit": limit}, Woken)
