"""Read-only queries about the history of jobs, from stored counts.

The cost of each query is bounded, independent of the amount of data. Values that no count contains, such
as medians, are computed from the latest runs only, and the pages state this.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Params, Query, identity, statement

MAX_FLOW_RUNS = 100
"""Latest runs of a flow that its statistics cover."""

MAX_FLOW_JOBS = 5000
"""Maximum number of jobs read for the statistics of one flow."""

MAX_SCAN_JOBS = 20_000
"""Number of latest jobs that are searched for those of one task."""


class JobCounts(msgspec.Struct, frozen=True):
    """Counts of jobs, for one period or one task."""

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
        """Share of successes among succeeded, failed and expired jobs; None if none has ended."""
        ended = self.succeeded + self.failed + self.expired
        return self.succeeded / ended if ended else None

    @property
    def mean_seconds(self) -> float | None:
        """Mean duration of an attempt."""
        return self.seconds / self.attempts if self.attempts else None

    @property
    def mean_wait_seconds(self) -> float | None:
        return self.wait_seconds / self.wait_count if self.wait_count else None


class BucketRow(JobCounts, frozen=True, kw_only=True):
    at: datetime


class TaskCounts(JobCounts, frozen=True, kw_only=True):
    task: str


class QueueHistoryRow(msgspec.Struct, frozen=True):
    """Counts of one queue, bucket by bucket."""

    queue: str
    claimed: list[int]
    ended: list[int]
    queued: list[int | None]
    """Depth at the start of each bucket; None if it was not sampled."""

    def arrived(self, queued_now: int) -> list[int | None]:
        """Return the arrivals per bucket: jobs claimed plus the growth of the queue."""
        after = [*self.queued[1:], queued_now]
        return [
            None if before is None or then is None else max(claimed + then - before, 0)
            for claimed, before, then in zip(self.claimed, self.queued, after, strict=True)
        ]


class FlowHistoryRow(msgspec.Struct, frozen=True):
    """Statistics of the latest runs of a flow."""

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
    """Statistics of one task's jobs in the latest runs of its flow."""

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
    """Progress of a flow's run."""

    run: int
    done: int | None
    """Number of ended jobs; None if there are too many to count each time."""
    total: int


class ProblemScheduleRow(msgspec.Struct, frozen=True):
    """Schedule with a problem."""

    name: str
    problem: str
    """`late`, `missed`, `refused`, `failing` or `stopped`."""
    since: datetime | None
    count: int


def counts(
    bucket_seconds: float, buckets: int, *, queue: str | None = None, task: str | None = None
) -> Query[BucketRow]:
    """Return counts for `buckets` periods of `bucket_seconds` (whole minutes) up to now.

    `queue` and `task` restrict the counts.
    """
    params = {"bucket_seconds": bucket_seconds, "buckets": buckets, "queue": queue, "task": task}
    return Query("history/counts", params, _read_bucket)


def history_seconds() -> Query[float | None]:
    """Return the age of the oldest count in seconds; None if there is none."""
    return Query("history/history_seconds", {}, identity)


def queue_depths(bucket_seconds: float, buckets: int) -> Query[tuple[datetime, int | None]]:
    """Return the maximum number of queued jobs per bucket; None if it was not sampled."""
    return Query(
        "history/queue_depths",
        {"bucket_seconds": bucket_seconds, "buckets": buckets},
        lambda at, ready: (at, ready),
    )


def queue_history(
    names: Sequence[str], bucket_seconds: float, buckets: int
) -> Query[QueueHistoryRow]:
    params = {"queues": list(names), "bucket_seconds": bucket_seconds, "buckets": buckets}
    return Query("history/queue_history", params, QueueHistoryRow)


def task_counts(minutes: int, limit: int = 2000) -> Query[TaskCounts]:
    return Query("history/task_counts", {"minutes": minutes, "limit": limit}, _read_task_counts)


@statement("history/flow_names", str)
def flow_names(limit: int = 500) -> None:
    """Return the names of flows that have runs, known to a worker or not."""


def flow_history(names: Sequence[str], run_limit: int = MAX_FLOW_RUNS) -> Query[FlowHistoryRow]:
    return Query(
        "history/flow_history", {"flows": list(names), "run_limit": run_limit}, FlowHistoryRow
    )


@statement("history/flow_task_history", FlowTaskHistoryRow)
def flow_task_history(flow: str, job_limit: int = MAX_FLOW_JOBS) -> Params:
    """Return task statistics of the latest runs of a flow. The larger the runs, the fewer are read."""
    return {"run_limit": MAX_FLOW_RUNS}


@statement("history/flow_runs", PastRunRow)
def flow_runs(flow: str, limit: int = 20) -> None: ...


@statement("history/task_runs", PastRunRow)
def task_runs(task: str, limit: int = 20, scan_limit: int = MAX_SCAN_JOBS) -> None:
    """Return the runs of a task that are among the latest jobs of all tasks."""


@statement("history/flow_progress", FlowProgressRow)
def flow_progress(runs: Sequence[int]) -> None: ...


@statement("history/problem_schedules", ProblemScheduleRow)
def problem_schedules(late_seconds: float, limit: int = 10) -> None:
    """Return schedules that are late by more than `late_seconds`, have missed ticks, or fail."""


def _read_bucket(at: datetime, *counted: float) -> BucketRow:
    return BucketRow(*counted, at=at)  # type: ignore[arg-type]


def _read_task_counts(task: str, *counted: float) -> TaskCounts:
    return TaskCounts(*counted, task=task)  # type: ignore[arg-type]
