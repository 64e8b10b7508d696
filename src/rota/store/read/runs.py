"""Read-only queries about runs, jobs, queues and workers, for the command line and the pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.model.document import Id, Mark, Payload, StoredError, StoredJson
from rota.store.query import Query, identity, statement

MAX_ID = 2**63 - 1
NO_LIMIT = 2**31 - 1


class QueueRow(msgspec.Struct, frozen=True):
    queue: str
    task: str
    queued: int
    oldest: (
        Annotated[float, Meta(description="Seconds that the oldest job has been queued.")] | None
    )
    workers: Annotated[int, Meta(description="Workers that can run the task.")]
    quarantined: int


class RunRow(msgspec.Struct, frozen=True):
    run: Id
    name: str
    is_flow: bool
    queue: str | None
    state: str
    attempt: int
    worker: Id | None
    since: datetime
    created: datetime
    key: str | None
    wakes: datetime | None
    awaits: list[str] | None
    """Signals that would wake it earlier."""
    done: float | None
    total: float | None
    note: Annotated[str, Mark.HIDDEN, Meta(description="Absent for viewers.")] | None


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
    """Error of the job, or the reason for its quarantine."""
    wakes: datetime | None
    awaits: list[str] | None
    """Signals that would wake it earlier."""
    origin: int | None
    """Run that it was forked from."""
    crashes: int
    """Number of workers lost while it ran, if it is a suspect or in quarantine."""
    is_suspect: bool
    """True if it is queued, was lost with a worker and is claimed alone."""


class FlowDetailRow(msgspec.Struct, frozen=True):
    run: int
    flow: str
    """Name of the flow; empty for calls of a job."""
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
    job: Id
    task: str
    queue: str
    state: str
    attempt: int
    worker: Id | None
    since: datetime
    rule: Annotated[str, Meta(description="Outcomes of its predecessors that it needs.")] | None
    successors: Annotated[list[Id], Meta(description="Jobs that depend on it.")]
    input_jobs: Annotated[list[Id], Meta(description="Jobs whose results it takes.")]
    """Its other predecessors only have to end first."""
    finished: datetime | None
    seconds: float | None
    error: StoredError
    wakes: datetime | None
    awaits: list[str] | None
    done: float | None
    total: float | None
    args: Payload = msgspec.field(name="input")
    result: Payload


class JobAttemptRow(msgspec.Struct, frozen=True):
    job: int
    attempt: int
    state: str
    worker: int | None
    at: datetime
    seconds: float | None
    error: bytes | None


class ChildRunRow(msgspec.Struct, frozen=True):
    run: Id
    parent: Annotated[Id, Meta(description="Job that started this run.")]
    flow: str
    state: str
    jobs: int


class AttemptRow(msgspec.Struct, frozen=True):
    attempt: int
    state: str
    worker: Id | None
    at: datetime
    seconds: float | None
    error: StoredError


class WorkerRow(msgspec.Struct, frozen=True):
    worker: int
    host: str
    pid: int
    state: str
    silent_seconds: float
    held_jobs: int


class WorkerDetailRow(msgspec.Struct, frozen=True):
    worker: Id
    state: Annotated[str, Meta(description="active, draining, silent, stopped or dead.")]
    host: str
    pid: int
    version: str
    rota_version: str
    queues: list[str]
    tasks: list[str]
    capacity: int
    running: int
    lag: float
    metadata: StoredJson
    started: datetime
    last_beat: datetime
    drain_requested: (
        Annotated[datetime, Meta(description="Time at which it was asked to drain.")] | None
    )
    ended: datetime | None
    charged_jobs: Annotated[list[Id], Meta(description="Jobs that caused its death.")]


class QuarantineRow(msgspec.Struct, frozen=True):
    job: Id
    run: Id
    task: str
    queue: str
    attempt: int
    crashes: int
    since: datetime
    error: StoredError


class StateCounts(msgspec.Struct, frozen=True):
    queued: int
    sleeping: int
    quarantined: int
    running: int


@statement("view/queues", QueueRow)
def queues() -> None: ...


@statement("view/run", RunDetailRow)
def run(run: int) -> None: ...


@statement("view/flow", FlowDetailRow)
def flow(run: int) -> None:
    """Return a flow's run. No row if the run is not one of a flow."""


@statement("view/jobs", JobRow)
def jobs(run: int, *, with_values: bool = False, after: int = 0, limit: int = NO_LIMIT) -> None:
    """Return the jobs of a flow's run, skipping the first `after`.

    With `with_values` they include arguments and results.
    """


def job_attempts(
    run: int, jobs: Sequence[int] | None = None, *, with_errors: bool = True
) -> Query[JobAttemptRow]:
    """Return the attempts of the jobs of a run, or of some of them."""
    params = {"run": run, "jobs": jobs and list(jobs), "with_errors": with_errors}
    return Query("view/job_attempts", params, JobAttemptRow)


@statement("view/child_runs", ChildRunRow)
def child_runs(run: int, limit: int | None = None) -> None:
    """Return the runs that jobs of a run have started."""


@statement("view/state", str)
def state(run: int) -> None: ...


@statement("view/attempts", AttemptRow)
def attempts(run: int) -> None: ...


@statement("view/state_counts", StateCounts)
def state_counts() -> None: ...


@statement("view/worker", WorkerRow)
def worker(worker: int) -> None: ...


@statement("view/workers", WorkerDetailRow)
def workers(worker: int | None = None, *, include_ended: bool = False) -> None:
    """Return the registered workers, or one; with `include_ended` also those that stopped or died."""


@statement("view/ended_workers", WorkerDetailRow)
def ended_workers(limit: int = 50) -> None:
    """Return the workers that stopped or died, latest first."""


@statement("view/quarantine", QuarantineRow)
def quarantine(
    task: str | None = None, queue: str | None = None, after: int = 0, limit: int = 20
) -> None: ...


@statement("view/count_eligible_workers", int)
def count_eligible_workers(queue: str, task: str) -> None: ...


def set_timeout(seconds: float) -> Query[str]:
    """Set the statement timeout for the rest of the transaction."""
    return Query("view/set_timeout", {"timeout_ms": int(seconds * 1000)}, str)


@statement("view/count_open_alerts", int)
def count_open_alerts() -> None: ...


def database_time() -> Query[datetime]:
    return Query("view/clock", {}, identity)
