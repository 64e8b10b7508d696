"""What is so at this very moment: read-only questions of views that look again and again."""

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
    """Who holds them, or had them last."""
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
    """What ended in one queue in one minute."""

    queue: str
    minute: int
    """Its beginning, in seconds since 1970."""
    ended: int
    failed: int
    retried: int
    wait_count: int
    wait_seconds: float


def running_jobs() -> Query[RunningJobRow]:
    return Query("live/held", {}, RunningJobRow)


def count_ended(jobs: Sequence[int]) -> Query[int]:
    return Query("live/ended", {"jobs": list(jobs)}, int)


def job_states(jobs: Sequence[int]) -> Query[JobStateRow]:
    return Query("live/whereabouts", {"jobs": list(jobs)}, JobStateRow)


def outcome_totals() -> Query[OutcomeTotalRow]:
    """For small databases."""
    return Query("live/sums", {}, OutcomeTotalRow)


def queue_depths() -> Query[QueueDepthRow]:
    return Query("live/depths", {}, QueueDepthRow)


def minute_rates(minutes: int = 2) -> Query[MinuteRateRow]:
    """Of this minute and so many before it."""
    return Query("live/pace", {"minutes": minutes}, MinuteRateRow)
