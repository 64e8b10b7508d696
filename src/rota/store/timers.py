"""Timers: what is asleep and due moves to ready."""

from __future__ import annotations

import msgspec

from rota.store.query import Query


class WokenJobs(msgspec.Struct, frozen=True):
    count: int
    queues: list[str]
    next_seconds: float | None
    """Seconds until the next one is due; None: nothing sleeps."""
    next_schedule_seconds: float | None
    """Seconds until the next schedule is; None: there is none."""


def wake(limit: int) -> Query[WokenJobs]:
    return Query("timer/wake", {"limit": limit}, WokenJobs)
