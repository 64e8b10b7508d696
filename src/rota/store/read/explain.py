"""Read-only questions about what does not run: where it is, and who or what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Query

MAX_SCAN_ROWS = 20_000
"""So far behind its number a job that came back is looked for."""


class ExplainedJob(msgspec.Struct, frozen=True):
    id: int
    run: int
    is_flow: bool
    name: str
    """Empty: calls a job has made."""
    state: str | None
    """How it ended; None: it has not."""
    at: datetime | None
    error: bytes | None
    cancel_requested: datetime | None
    """Since when somebody wishes it to stop."""
    now: datetime


class PredecessorRow(msgspec.Struct, frozen=True):
    job: int
    is_root: bool
    is_direct: bool
    total: int
    """How many there are of its kind, listed or not."""


class JobSituationRow(msgspec.Struct, frozen=True):
    """One job, and where it is."""

    job: int
    run: int
    is_child: bool
    """It is one of the calls of a job."""
    task: str
    queue: str
    state: str
    outcome: str
    attempt: int | None
    since: datetime | None
    created: datetime
    expires: datetime | None
    wakes: datetime | None
    """None: no time wakes it."""
    signals: list[str] | None
    rule: str | None
    lost: int | None
    """Below 0: it was lost with a worker; None: it is no suspect."""
    worker: int | None
    claim_expires: datetime | None
    """When its worker may hold it no longer."""
    is_exclusive: bool | None
    worker_state: str | None
    host: str | None
    pid: int | None
    silent_seconds: float | None
    lag: float | None
    running: int | None
    capacity: int | None
    held_jobs: int | None
    """How many jobs its worker holds."""
    done: float | None
    total: float | None
    note: str | None
    progress_at: datetime | None
    cancel_requested: datetime | None
    error: bytes | None
    """Of its last attempt; of one in quarantine, why it is there."""
    paused_since: datetime | None
    """Since when its queue is paused; by whom and why."""
    paused_by: str | None
    pause_reason: str | None


class WaitingRow(msgspec.Struct, frozen=True):
    job: int
    kind: str
    name: str
    number: int
    tries: int
    at: datetime
    until: datetime | None
    error: bytes | None


class CallingRow(msgspec.Struct, frozen=True):
    run: int
    parent: int
    flow: str
    created: datetime


class EligibleWorkers(msgspec.Struct, frozen=True):
    """Who is there for the jobs of one task in one queue."""

    queue: str
    task: str
    workers: int
    alive: int
    """Those of them that have been heard of."""
    wakers: int
    """Those that have and are not about to leave: they wake what sleeps."""
    serving: int
    knowing: int
    eligible: int
    """Those that serve and know and are not about to leave."""
    conditions: list[str]
    """Of each that serves and knows: what keeps it, or `free`."""
    worker_ids: list[int]
    running: int
    versions: list[str]
    """Of those that serve the queue and do not know the task."""
    queues: list[str]


class QueuePosition(msgspec.Struct, frozen=True):
    job: int
    seq: int | None
    ahead: int


class AwaitedLockRow(msgspec.Struct, frozen=True):
    """A lock that somebody waits for."""

    name: str
    permit: int
    host: str
    pid: int
    label: str
    since: datetime
    expires: datetime


def subject(id: int) -> Query[ExplainedJob]:
    return Query("why/subject", {"id": id}, ExplainedJob)


def predecessors(run: int, job: int | None, limit: int) -> Query[PredecessorRow]:
    return Query("why/chain", {"run": run, "job": job, "limit": limit}, PredecessorRow)


def job_states(jobs: Sequence[int]) -> Query[JobSituationRow]:
    return Query("why/places", {"jobs": list(jobs)}, JobSituationRow)


def open_steps(jobs: Sequence[int]) -> Query[WaitingRow]:
    return Query("why/steps", {"jobs": list(jobs)}, WaitingRow)


def open_child_runs(jobs: Sequence[int], run: int | None, limit: int) -> Query[CallingRow]:
    return Query("why/calls", {"jobs": list(jobs), "run": run, "limit": limit}, CallingRow)


def eligible_workers(
    pairs: Sequence[tuple[str, str]], silent_seconds: float, late_seconds: float
) -> Query[EligibleWorkers]:
    """`silent`: for so many seconds not heard of; `late`: so many seconds behind with everything."""
    queues, tasks = [queue for queue, _ in pairs], [task for _, task in pairs]
    params = {"queues": queues, "tasks": tasks, "silent": silent_seconds, "late": late_seconds}
    return Query("why/crowd", params, EligibleWorkers)


def queue_positions(jobs: Sequence[int], limit: int) -> Query[QueuePosition]:
    """How many are before each, counted up to `most`."""
    return Query(
        "why/turn", {"jobs": list(jobs), "far": MAX_SCAN_ROWS, "most": limit}, QueuePosition
    )


def awaited_locks(limit: int) -> Query[AwaitedLockRow]:
    return Query("why/locks", {"limit": limit}, AwaitedLockRow)


def has_pending_releases() -> Query[bool]:
    return Query("why/echoes", {}, bool)
