"""Read-only questions that the command line and pages ask."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Query

MAX_ID = 2**63 - 1
NO_LIMIT = 2**31 - 1


class QueueRow(msgspec.Struct, frozen=True):
    queue: str
    task: str
    queued: int
    oldest: float | None
    workers: int
    quarantined: int


class RunRow(msgspec.Struct, frozen=True):
    run: int
    name: str
    is_flow: bool
    queue: str | None
    state: str
    attempt: int
    worker: int | None
    since: datetime
    created: datetime
    key: str | None
    wakes: datetime | None
    awaits: list[str] | None
    """Signals that would wake it before then."""
    done: float | None
    total: float | None
    note: str | None


class RunDetailRow(msgspec.Struct, frozen=True):
    run: int
    task: str
    queue: str
    state: str
    attempt: int
    worker: int | None
    since: datetime
    created: datetime
    expires: datetime | None
    priority: int
    key: str | None
    args: bytes
    options: bytes | None
    finished: datetime | None
    seconds: float | None
    result: bytes | None
    error: bytes | None
    """Also why it is in quarantine."""
    wakes: datetime | None
    awaits: list[str] | None
    """Signals that would wake it before then."""
    origin: int | None
    """The run it was forked from."""
    crashes: int
    """How many workers died of it, while it is a suspect or in quarantine."""
    is_suspect: bool
    """It is ready, was lost with a worker and is claimed by itself."""


class FlowDetailRow(msgspec.Struct, frozen=True):
    run: int
    flow: str
    """Empty: calls a job has made."""
    state: str
    attempt: int
    created: datetime
    since: datetime
    key: str | None
    parent: int | None
    origin: int | None
    input: bytes
    finished: datetime | None
    jobs: int


class JobRow(msgspec.Struct, frozen=True):
    job: int
    task: str
    queue: str
    state: str
    attempt: int
    worker: int | None
    since: datetime
    rule: str | None
    successors: list[int]
    input_jobs: list[int]
    """The jobs whose results it takes; the others before it only come first."""
    finished: datetime | None
    seconds: float | None
    error: bytes | None
    wakes: datetime | None
    awaits: list[str] | None
    done: float | None
    total: float | None
    args: bytes | None
    result: bytes | None


class JobAttemptRow(msgspec.Struct, frozen=True):
    job: int
    attempt: int
    state: str
    worker: int | None
    at: datetime
    seconds: float | None
    error: bytes | None


class ChildRunRow(msgspec.Struct, frozen=True):
    run: int
    parent: int
    flow: str
    state: str
    jobs: int


class AttemptRow(msgspec.Struct, frozen=True):
    attempt: int
    state: str
    worker: int | None
    at: datetime
    seconds: float | None
    error: bytes | None


class WorkerRow(msgspec.Struct, frozen=True):
    worker: int
    host: str
    pid: int
    state: str
    silent_seconds: float
    held_jobs: int

    @property
    def has_ended(self) -> bool:
        return self.state in ("stopped", "dead")


class WorkerDetailRow(msgspec.Struct, frozen=True):
    worker: int
    state: str
    host: str
    pid: int
    version: str
    rota_version: str
    queues: list[str]
    tasks: list[str]
    capacity: int
    running: int
    lag: float
    metadata: bytes
    started: datetime
    last_beat: datetime
    drain_requested: datetime | None
    ended: datetime | None
    charged_jobs: list[int]


class QuarantineRow(msgspec.Struct, frozen=True):
    job: int
    run: int
    task: str
    queue: str
    attempt: int
    crashes: int
    since: datetime
    error: bytes | None


class StateCounts(msgspec.Struct, frozen=True):
    queued: int
    sleeping: int
    quarantined: int
    running: int


def queues() -> Query[QueueRow]:
    return Query("view/queues", {}, QueueRow)


def run(run: int) -> Query[RunDetailRow]:
    return Query("view/run", {"run": run}, RunDetailRow)


def flow(run: int) -> Query[FlowDetailRow]:
    """A run of a flow; no row: it is none."""
    return Query("view/flow", {"run": run}, FlowDetailRow)


def jobs(
    run: int, *, with_values: bool = False, after: int = 0, limit: int = NO_LIMIT
) -> Query[JobRow]:
    """The jobs of a flow's run, those after the first so many; `whole`: with what went in and came out."""
    params = {"run": run, "whole": with_values, "after": after, "limit": limit}
    return Query("view/jobs", params, JobRow)


def job_attempts(
    run: int, jobs: Sequence[int] | None = None, *, with_errors: bool = True
) -> Query[JobAttemptRow]:
    """Of each job of a run, or of some of them."""
    params = {"run": run, "jobs": jobs and list(jobs), "errors": with_errors}
    return Query("view/tries", params, JobAttemptRow)


def child_runs(run: int, limit: int | None = None) -> Query[ChildRunRow]:
    """Runs started by jobs of a run."""
    return Query("view/called", {"run": run, "limit": limit}, ChildRunRow)


def state(run: int) -> Query[str]:
    return Query("view/state", {"run": run}, str)


def attempts(run: int) -> Query[AttemptRow]:
    return Query("view/attempts", {"run": run}, AttemptRow)


def state_counts() -> Query[StateCounts]:
    return Query("view/places", {}, StateCounts)


def queue_counts(queue: str) -> Query[tuple[str, int]]:
    return Query("view/tally", {"queue": queue}, lambda state, jobs: (state, jobs))


def worker(worker: int) -> Query[WorkerRow]:
    return Query("view/worker", {"worker": worker}, WorkerRow)


def workers(*, include_ended: bool = False) -> Query[WorkerDetailRow]:
    """Those that are there; `gone`: also those that have left or died."""
    return Query("view/workers", {"gone": include_ended}, WorkerDetailRow)


def ended_workers(limit: int = 50) -> Query[WorkerDetailRow]:
    """Those that have left or died, the last first."""
    return Query("view/departed", {"limit": limit}, WorkerDetailRow)


def quarantine(
    task: str | None = None, queue: str | None = None, after: int = 0, limit: int = 20
) -> Query[QuarantineRow]:
    params = {"task": task, "queue": queue, "after": after, "limit": limit}
    return Query("view/quarantine", params, QuarantineRow)


def count_eligible_workers(queue: str, task: str) -> Query[int]:
    return Query("view/takers", {"queue": queue, "task": task}, int)


def set_timeout(seconds: float) -> Query[str]:
    """For the rest of the transaction: how long a statement may take."""
    return Query("view/within", {"milliseconds": int(seconds * 1000)}, str)


def count_open_alerts() -> Query[int]:
    """How many there are."""
    return Query("view/open_alerts", {}, int)


def database_time() -> Query[datetime]:
    return Query("view/clock", {}, _identity)


def _identity(value: datetime) -> datetime:
    return value
