"""What became of jobs over time, as it was counted: read-only questions that pages ask.

Each is answered at a bounded price, however much there was. What no count tells, medians among it, is found
among the last runs alone, and who shows it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Query

MAX_FLOW_RUNS = 100
"""The last runs of a flow that figures are of."""

MAX_FLOW_JOBS = 5000
"""Jobs that are looked at for the figures of one flow, at most."""

MAX_SCAN_JOBS = 20_000
"""The latest jobs, among which those of one task are looked for."""


class JobCounts(msgspec.Struct, frozen=True):
    """What was counted of jobs, in one stretch of time or of one task."""

    succeeded: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    quarantined: int
    retried: int
    attempts: int
    seconds: float
    max_seconds: float
    wait_count: int
    wait_seconds: float
    max_wait_seconds: float

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled + self.expired + self.skipped

    @property
    def success_rate(self) -> float | None:
        """How many of those succeeded that could; None: none has ended."""
        ended = self.succeeded + self.failed + self.expired
        return self.succeeded / ended if ended else None

    @property
    def mean_seconds(self) -> float | None:
        """Seconds that an attempt took."""
        return self.seconds / self.attempts if self.attempts else None

    @property
    def mean_wait_seconds(self) -> float | None:
        return self.wait_seconds / self.wait_count if self.wait_count else None


class BucketRow(JobCounts, frozen=True, kw_only=True):
    at: datetime


class TaskCounts(JobCounts, frozen=True, kw_only=True):
    task: str


class QueueHistoryRow(msgspec.Struct, frozen=True):
    """Of one queue, stretch by stretch."""

    queue: str
    claimed: list[int]
    ended: list[int]
    queued: list[int | None]
    """When each began; None: nobody has seen."""

    def arrived(self, queued_now: int) -> list[int | None]:
        """How many came: those that were taken, and what the queue grew by."""
        after = [*self.queued[1:], queued_now]
        return [
            None if before is None or then is None else max(claimed + then - before, 0)
            for claimed, before, then in zip(self.claimed, self.queued, after, strict=True)
        ]


class UnservedQueueRow(msgspec.Struct, frozen=True):
    """Jobs that nobody who is there would take."""

    queue: str
    task: str
    jobs: int
    """At least so many."""
    first_run: int
    """The first of them."""
    created: datetime | None
    serving_workers: int
    """Workers that serve the queue and do not know the task."""


class FlowHistoryRow(msgspec.Struct, frozen=True):
    """What the last runs of a flow came to."""

    flow: str
    runs: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    median_seconds: float | None
    p95_seconds: float | None
    max_seconds: float | None
    last_started: datetime

    @property
    def success_rate(self) -> float | None:
        ended = self.succeeded + self.failed
        return self.succeeded / ended if ended else None


class FlowTaskHistoryRow(msgspec.Struct, frozen=True):
    """What the jobs of one task came to, in the last runs of its flow."""

    task: str
    ended: int
    succeeded: int
    failed: int
    skipped: int
    median_seconds: float | None
    p95_seconds: float | None

    @property
    def success_rate(self) -> float | None:
        ended = self.succeeded + self.failed
        return self.succeeded / ended if ended else None


class PastRunRow(msgspec.Struct, frozen=True):
    run: int
    state: str
    attempt: int
    created: datetime
    ended: datetime | None
    key: str | None

    @property
    def seconds(self) -> float | None:
        return None if self.ended is None else (self.ended - self.created).total_seconds()


class FlowProgressRow(msgspec.Struct, frozen=True):
    """How far a flow's run has come."""

    run: int
    done: int | None
    """Jobs that have ended; None: there are too many to count them each time."""
    total: int


class ProblemScheduleRow(msgspec.Struct, frozen=True):
    """A schedule that somebody should look at."""

    name: str
    problem: str
    """late, missed, refused, failing or stopped."""
    since: datetime | None
    count: int


def counts(
    bucket_seconds: float, buckets: int, *, queue: str | None = None, task: str | None = None
) -> Query[BucketRow]:
    """So many stretches of `step` seconds, whole minutes, up to now; of one queue or task where asked."""
    params = {"step": bucket_seconds, "many": buckets, "queue": queue, "task": task}
    return Query("history/counts", params, _read_bucket)


def history_seconds() -> Query[float | None]:
    """For how many seconds there are counts; None: there are none."""
    return Query("history/begins", {}, lambda age: age)


def queue_depths(bucket_seconds: float, buckets: int) -> Query[tuple[datetime, int | None]]:
    """How many jobs were ready in each stretch, at most; None: nobody looked."""
    return Query(
        "history/depths", {"step": bucket_seconds, "many": buckets}, lambda at, ready: (at, ready)
    )


def queue_history(
    names: Sequence[str], bucket_seconds: float, buckets: int
) -> Query[QueueHistoryRow]:
    params = {"queues": list(names), "step": bucket_seconds, "many": buckets}
    return Query("history/queues", params, QueueHistoryRow)


def task_counts(minutes: int, limit: int = 2000) -> Query[TaskCounts]:
    return Query("history/tasks", {"minutes": minutes, "limit": limit}, _read_task_counts)


def unserved_tasks() -> Query[UnservedQueueRow]:
    return Query("history/unserved", {}, UnservedQueueRow)


def flow_names(limit: int = 500) -> Query[str]:
    """Of flows that have runs, whoever knows them."""
    return Query("history/flow_names", {"limit": limit}, str)


def flow_history(names: Sequence[str], run_limit: int = MAX_FLOW_RUNS) -> Query[FlowHistoryRow]:
    return Query("history/flows", {"flows": list(names), "runs": run_limit}, FlowHistoryRow)


def flow_task_history(flow: str, job_limit: int = MAX_FLOW_JOBS) -> Query[FlowTaskHistoryRow]:
    """Of the last runs of a flow: fewer of them, the larger they are."""
    return Query(
        "history/nodes",
        {"flow": flow, "runs": MAX_FLOW_RUNS, "jobs": job_limit},
        FlowTaskHistoryRow,
    )


def flow_runs(flow: str, limit: int = 20) -> Query[PastRunRow]:
    return Query("history/flow_runs", {"flow": flow, "limit": limit}, PastRunRow)


def task_runs(task: str, limit: int = 20, scan_limit: int = MAX_SCAN_JOBS) -> Query[PastRunRow]:
    """Those that are among the latest jobs of all."""
    return Query(
        "history/task_runs", {"task": task, "limit": limit, "among": scan_limit}, PastRunRow
    )


def flow_progress(runs: Sequence[int]) -> Query[FlowProgressRow]:
    """Of runs of flows."""
    return Query("history/shares", {"runs": list(runs)}, FlowProgressRow)


def problem_schedules(late_seconds: float, limit: int = 10) -> Query[ProblemScheduleRow]:
    """Schedules that are late by more than so many seconds, have missed ticks, or fail."""
    return Query("history/troubled", {"late": late_seconds, "limit": limit}, ProblemScheduleRow)


def _read_bucket(at: datetime, *counted: float) -> BucketRow:
    return BucketRow(*counted, at=at)  # type: ignore[arg-type]


def _read_task_counts(task: str, *counted: float) -> TaskCounts:
    return TaskCounts(*counted, task=task)  # type: ignore[arg-type]
