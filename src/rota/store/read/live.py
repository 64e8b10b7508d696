"""Read-only queries for views that are refreshed continuously."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.store.query import Query


class RunningJobRow(msgspec.Struct, frozen=True):
    worker: int
    task: str
    jobs: int


class JobStateRow(msgspec.Struct, frozen=True):
    state: str
    worker: int | None
    """Current or last worker of these jobs."""
    jobs: int


class OutcomeTotalRow(msgspec.Struct, frozen=True):
    state: str
    jobs: int
    retries: int


class QueueDepthRow(msgspec.Struct, frozen=True):
    queue: str
    queued: int
    is_exact: bool
    oldest: float | None


class MinuteRateRow(msgspec.Struct, frozen=True):
    """Counts of one queue for one minute."""

    queue: str
    minute: int
    """Start of the minute, in seconds since 1970."""
    ended: int
    failed: int
    retried: int
    wait_count: int
    wait_seconds: float


def running_jobs() -> Query[RunningJobRow]:
    return Query("live/running_jobs", {}, RunningJobRow)


def count_ended(jobs: Sequence[int]) -> Query[int]:
    return Query("live/count_ended", {"jobs": list(jobs)}, int)


def job_states(jobs: Sequence[int]) -> Query[JobStateRow]:
    return Query("live/job_states", {"jobs": list(jobs)}, JobStateRow)


def outcome_totals() -> Query[OutcomeTotalRow]:
    """Count all outcomes. Reads the whole table: for small databases only."""
    return Query("live/outcome_totals", {}, OutcomeTotalRow)


def queue_depths() -> Query[QueueDepthRow]:
    return Query("live/queue_depths", {}, QueueDepthRow)


def minute_rates(minutes: int = 2) -> Query[MinuteRateRow]:
    """Return the counts of this minute and of `minutes` before it."""
    return Query("live/minute_rates", {"minutes": minutes}, MinuteRateRow)
