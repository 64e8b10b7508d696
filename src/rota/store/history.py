"""What became of jobs over time, as it was counted: read-only questions that pages ask.

Each is answered at a bounded price, however much there was. What no count tells, medians among it, is found
among the last runs alone, and who shows it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Query

RUNS = 100
"""The last runs of a flow that figures are of."""

JOBS = 5000
"""Jobs that are looked at for the figures of one flow, at most."""

AMONG = 20_000
"""The latest jobs, among which those of one task are looked for."""


class Counts(msgspec.Struct, frozen=True):
    """What was counted of jobs, in one stretch of time or of one task."""

    succeeded: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    quarantined: int
    retried: int
    attempts: int
    took: float
    longest: float
    waits: int
    waited: float
    longest_wait: float

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled + self.expired + self.skipped

    @property
    def rate(self) -> float | None:
        """How many of those succeeded that could; None: none has ended."""
        ended = self.succeeded + self.failed + self.expired
        return self.succeeded / ended if ended else None

    @property
    def mean(self) -> float | None:
        """Seconds that an attempt took."""
        return self.took / self.attempts if self.attempts else None

    @property
    def mean_wait(self) -> float | None:
        return self.waited / self.waits if self.waits else None


class Stretch(Counts, frozen=True, kw_only=True):
    at: datetime


class TaskCounts(Counts, frozen=True, kw_only=True):
    task: str


class QueuePast(msgspec.Struct, frozen=True):
    """Of one queue, stretch by stretch."""

    queue: str
    taken: list[int]
    ended: list[int]
    ready: list[int | None]
    """When each began; None: nobody has seen."""

    def arrived(self, ready_now: int) -> list[int | None]:
        """How many came: those that were taken, and what the queue grew by."""
        after = [*self.ready[1:], ready_now]
        return [
            None if before is None or then is None else max(taken + then - before, 0)
            for taken, before, then in zip(self.taken, self.ready, after, strict=True)
        ]


class Unserved(msgspec.Struct, frozen=True):
    """Jobs that nobody who is there would take."""

    queue: str
    task: str
    jobs: int
    """At least so many."""
    run: int
    """The first of them."""
    created: datetime | None
    serving: int
    """Workers that serve the queue and do not know the task."""


class FlowPast(msgspec.Struct, frozen=True):
    """What the last runs of a flow came to."""

    flow: str
    runs: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    median: float | None
    p95: float | None
    longest: float | None
    last: datetime

    @property
    def rate(self) -> float | None:
        ended = self.succeeded + self.failed
        return self.succeeded / ended if ended else None


class NodePast(msgspec.Struct, frozen=True):
    """What the jobs of one task came to, in the last runs of its flow."""

    task: str
    ended: int
    succeeded: int
    failed: int
    skipped: int
    median: float | None
    p95: float | None

    @property
    def rate(self) -> float | None:
        ended = self.succeeded + self.failed
        return self.succeeded / ended if ended else None


class PastRun(msgspec.Struct, frozen=True):
    run: int
    state: str
    attempt: int
    created: datetime
    ended: datetime | None
    key: str | None

    @property
    def took(self) -> float | None:
        return None if self.ended is None else (self.ended - self.created).total_seconds()


class Share(msgspec.Struct, frozen=True):
    """How far a flow's run has come."""

    run: int
    done: int | None
    """Jobs that have ended; None: there are too many to count them each time."""
    total: int


class Troubled(msgspec.Struct, frozen=True):
    """A schedule that somebody should look at."""

    name: str
    trouble: str
    """late, missed, refused, failing or stopped."""
    since: datetime | None
    many: int


def counts(
    step: float, many: int, *, queue: str | None = None, task: str | None = None
) -> Query[Stretch]:
    """So many stretches of `step` seconds, whole minutes, up to now; of one queue or task where asked."""
    params = {"step": step, "many": many, "queue": queue, "task": task}
    return Query("history/counts", params, _stretch)


def begins() -> Query[float | None]:
    """For how many seconds there are counts; None: there are none."""
    return Query("history/begins", {}, lambda age: age)


def depths(step: float, many: int) -> Query[tuple[datetime, int | None]]:
    """How many jobs were ready in each stretch, at most; None: nobody looked."""
    return Query("history/depths", {"step": step, "many": many}, lambda at, ready: (at, ready))


def queues(names: Sequence[str], step: float, many: int) -> Query[QueuePast]:
    params = {"queues": list(names), "step": step, "many": many}
    return Query("history/queues", params, QueuePast)


def tasks(minutes: int, limit: int = 2000) -> Query[TaskCounts]:
    return Query("history/tasks", {"minutes": minutes, "limit": limit}, _task)


def unserved() -> Query[Unserved]:
    return Query("history/unserved", {}, Unserved)


def flow_names(limit: int = 500) -> Query[str]:
    """Of flows that have runs, whoever knows them."""
    return Query("history/flow_names", {"limit": limit}, str)


def flows(names: Sequence[str], runs: int = RUNS) -> Query[FlowPast]:
    return Query("history/flows", {"flows": list(names), "runs": runs}, FlowPast)


def nodes(flow: str, jobs: int = JOBS) -> Query[NodePast]:
    """Of the last runs of a flow: fewer of them, the larger they are."""
    return Query("history/nodes", {"flow": flow, "runs": RUNS, "jobs": jobs}, NodePast)


def flow_runs(flow: str, limit: int = 20) -> Query[PastRun]:
    return Query("history/flow_runs", {"flow": flow, "limit": limit}, PastRun)


def task_runs(task: str, limit: int = 20, among: int = AMONG) -> Query[PastRun]:
    """Those that are among the latest jobs of all."""
    return Query("history/task_runs", {"task": task, "limit": limit, "among": among}, PastRun)


def shares(runs: Sequence[int]) -> Query[Share]:
    """Of runs of flows."""
    return Query("history/shares", {"runs": list(runs)}, Share)


def troubled(late: float, limit: int = 10) -> Query[Troubled]:
    """Schedules that are late by more than so many seconds, have missed ticks, or fail."""
    return Query("history/troubled", {"late": late, "limit": limit}, Troubled)


def _stretch(at: datetime, *counted: float) -> Stretch:
    return Stretch(*counted, at=at)  # type: ignore[arg-type]


def _task(task: str, *counted: float) -> TaskCounts:
    return TaskCounts(*counted, task=task)  # type: ignore[arg-type]
