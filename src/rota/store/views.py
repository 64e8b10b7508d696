"""Read-only questions that the command line and pages ask."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Query

NEWEST = 2**63 - 1
EVERY = 2**31 - 1


class QueueLine(msgspec.Struct, frozen=True):
    queue: str
    task: str
    ready: int
    oldest: float | None
    workers: int
    quarantined: int


class RunLine(msgspec.Struct, frozen=True):
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


class RunDetail(msgspec.Struct, frozen=True):
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
    took: float | None
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
    suspect: bool
    """It is ready, was lost with a worker and is claimed by itself."""


class FlowDetail(msgspec.Struct, frozen=True):
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


class JobLine(msgspec.Struct, frozen=True):
    job: int
    task: str
    queue: str
    state: str
    attempt: int
    worker: int | None
    since: datetime
    rule: str | None
    children: list[int]
    takes: list[int]
    """The jobs whose results it takes; the others before it only come first."""
    finished: datetime | None
    took: float | None
    error: bytes | None
    wakes: datetime | None
    awaits: list[str] | None
    done: float | None
    total: float | None
    args: bytes | None
    result: bytes | None


class TryLine(msgspec.Struct, frozen=True):
    job: int
    attempt: int
    state: str
    worker: int | None
    at: datetime
    took: float | None
    error: bytes | None


class CalledLine(msgspec.Struct, frozen=True):
    run: int
    parent: int
    flow: str
    state: str
    jobs: int


class AttemptLine(msgspec.Struct, frozen=True):
    attempt: int
    state: str
    worker: int | None
    at: datetime
    took: float | None
    error: bytes | None


class WorkerLine(msgspec.Struct, frozen=True):
    worker: int
    host: str
    pid: int
    state: str
    silent: float
    held: int

    @property
    def has_ended(self) -> bool:
        return self.state in ("stopped", "dead")


class WorkerDetail(msgspec.Struct, frozen=True):
    worker: int
    state: str
    host: str
    pid: int
    version: str
    engine: str
    queues: list[str]
    tasks: list[str]
    capacity: int
    running: int
    lag: float
    metadata: bytes
    started: datetime
    beat: datetime
    asked: datetime | None
    ended: datetime | None
    blamed: list[int]


class QuarantineLine(msgspec.Struct, frozen=True):
    job: int
    run: int
    task: str
    queue: str
    attempt: int
    crashes: int
    since: datetime
    error: bytes | None


class Places(msgspec.Struct, frozen=True):
    ready: int
    asleep: int
    quarantined: int
    running: int


def queues() -> Query[QueueLine]:
    return Query("view/queues", {}, QueueLine)


def run(run: int) -> Query[RunDetail]:
    return Query("view/run", {"run": run}, RunDetail)


def flow(run: int) -> Query[FlowDetail]:
    """A run of a flow; no row: it is none."""
    return Query("view/flow", {"run": run}, FlowDetail)


def jobs(run: int, *, whole: bool = False, after: int = 0, limit: int = EVERY) -> Query[JobLine]:
    """The jobs of a flow's run, those after the first so many; `whole`: with what went in and came out."""
    params = {"run": run, "whole": whole, "after": after, "limit": limit}
    return Query("view/jobs", params, JobLine)


def tries(run: int, jobs: Sequence[int] | None = None, *, errors: bool = True) -> Query[TryLine]:
    """Of each job of a run, or of some of them."""
    params = {"run": run, "jobs": jobs and list(jobs), "errors": errors}
    return Query("view/tries", params, TryLine)


def called(run: int, limit: int | None = None) -> Query[CalledLine]:
    """Runs started by jobs of a run."""
    return Query("view/called", {"run": run, "limit": limit}, CalledLine)


def state(run: int) -> Query[str]:
    return Query("view/state", {"run": run}, str)


def attempts(run: int) -> Query[AttemptLine]:
    return Query("view/attempts", {"run": run}, AttemptLine)


def places() -> Query[Places]:
    return Query("view/places", {}, Places)


def tally(queue: str) -> Query[tuple[str, int]]:
    return Query("view/tally", {"queue": queue}, lambda state, jobs: (state, jobs))


def worker(worker: int) -> Query[WorkerLine]:
    return Query("view/worker", {"worker": worker}, WorkerLine)


def workers(*, gone: bool = False) -> Query[WorkerDetail]:
    """Those that are there; `gone`: also those that have left or died."""
    return Query("view/workers", {"gone": gone}, WorkerDetail)


def departed(limit: int = 50) -> Query[WorkerDetail]:
    """Those that have left or died, the last first."""
    return Query("view/departed", {"limit": limit}, WorkerDetail)


def quarantine(
    task: str | None = None, queue: str | None = None, after: int = 0, limit: int = 20
) -> Query[QuarantineLine]:
    params = {"task": task, "queue": queue, "after": after, "limit": limit}
    return Query("view/quarantine", params, QuarantineLine)


def takers(queue: str, task: str) -> Query[int]:
    return Query("view/takers", {"queue": queue, "task": task}, int)


def within(seconds: float) -> Query[str]:
    """For the rest of the transaction: how long a statement may take."""
    return Query("view/within", {"milliseconds": int(seconds * 1000)}, str)


def open_alerts() -> Query[int]:
    """How many there are."""
    return Query("view/open_alerts", {}, int)


def clock() -> Query[datetime]:
    return Query("view/clock", {}, _same)


def _same(value: datetime) -> datetime:
    return value
