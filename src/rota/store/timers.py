"""Timers: sleeping jobs that are due become queued."""

from __future__ import annotations

import msgspec

from rota.store.query import statement


class WokenJobs(msgspec.Struct, frozen=True):
    count: int
    queues: list[str]
    next_seconds: float | None
    """Seconds until the next job is due; None if no job sleeps."""
    next_schedule_seconds: float | None
    """Seconds until the next schedule is due; None if there is none."""


@statement("timer/wake", WokenJobs)
def wake(limit: int) -> None: ...
