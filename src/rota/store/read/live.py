"""Read-only queries for views that are refreshed continuously."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.store.query import statement


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


@statement("live/running_jobs", RunningJobRow)
def running_jobs() -> None: ...


@statement("live/count_ended", int)
def count_ended(jobs: Sequence[int]) -> None: ...


@statement("live/job_states", JobStateRow)
def job_states(jobs: Sequence[int]) -> None: ...


@statement("live/outcome_totals", OutcomeTotalRow)
def outcome_totals() -> None:
    """Count all outcomes. Reads the whole table: for small databases only."""


@statement("live/queue_depths", QueueDepthRow)
def queue_depths() -> None: ...


@statement("live/minute_rates", MinuteRateRow)
def minute_rates(minutes: int = 2) -> None:
    """Return the counts of this minute and of `minutes` before it."""
