"""Read-only queries for `rota explain`: the state of a job and the reasons why it does not run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.store.query import Params, statement

MAX_SCAN_ROWS = 20_000
"""Number of queued rows that are searched for a job that was requeued."""


class ExplainedJob(msgspec.Struct, frozen=True):
    id: int
    run: int
    is_flow: bool
    name: str
    """Name of the task or flow; empty for calls of a job."""
    state: str | None
    """Final state; None if it has not ended."""
    at: datetime | None
    error: bytes | None
    cancel_requested: datetime | None
    """Time of the cancel request."""
    now: datetime


class PredecessorRow(msgspec.Struct, frozen=True):
    job: int
    is_root: bool
    is_direct: bool
    total: int
    """Number of predecessors of this kind, listed or not."""


class JobSituationRow(msgspec.Struct, frozen=True):
    """State of one job."""

    job: int
    run: int
    is_child: bool
    """True if it is one of the calls of a job."""
    task: str
    queue: str
    state: str
    outcome: str
    attempt: int | None
    since: datetime | None
    created: datetime
    expires: datetime | None
    wakes: datetime | None
    """Time at which it wakes; None if only a signal wakes it."""
    signals: list[str] | None
    rule: str | None
    suspicion: str | None
    """`mild` or `grave` if a lost worker held it and it is queued again; None if it is no suspect."""
    worker: int | None
    claim_expires: datetime | None
    """End of the claim's visibility timeout."""
    is_exclusive: bool | None
    worker_state: str | None
    host: str | None
    pid: int | None
    silent_seconds: float | None
    lag: float | None
    running: int | None
    capacity: int | None
    held_jobs: int | None
    """Number of jobs that its worker holds."""
    done: float | None
    total: float | None
    note: str | None
    progress_at: datetime | None
    cancel_requested: datetime | None
    error: bytes | None
    """Error of the last attempt, or the reason for the quarantine."""
    paused_since: datetime | None
    """Time since which its queue is paused."""
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
    """Workers for the jobs of one task in one queue."""

    queue: str
    task: str
    workers: int
    alive: int
    """Workers with a recent heartbeat."""
    wakers: int
    """Workers with a recent heartbeat that are not draining: they wake sleeping jobs."""
    serving: int
    knowing: int
    eligible: int
    """Workers that serve the queue, know the task and are not draining."""
    conditions: list[str]
    """For each worker that serves the queue and knows the task: the reason why it cannot claim, or `free`.
    """
    worker_ids: list[int]
    running: int
    versions: list[str]
    """Versions of workers that serve the queue but do not know the task."""
    queues: list[str]


class QueuePosition(msgspec.Struct, frozen=True):
    job: int
    seq: int | None
    ahead: int


class AwaitedLockRow(msgspec.Struct, frozen=True):
    """Lock that a client waits for."""

    name: str
    permit: int
    host: str
    pid: int
    label: str
    since: datetime
    expires: datetime


@statement("explain/subject", ExplainedJob)
def subject(id: int) -> None: ...


@statement("explain/predecessors", PredecessorRow)
def predecessors(run: int, job: int | None, limit: int) -> None: ...


@statement("explain/job_states", JobSituationRow)
def job_states(jobs: Sequence[int]) -> None: ...


@statement("explain/open_steps", WaitingRow)
def open_steps(jobs: Sequence[int]) -> None: ...


@statement("explain/open_child_runs", CallingRow)
def open_child_runs(jobs: Sequence[int], run: int | None, limit: int) -> None: ...


@statement("explain/eligible_workers", EligibleWorkers)
def eligible_workers(
    pairs: Sequence[tuple[str, str]], silent_seconds: float, late_seconds: float
) -> Params:
    """Count workers for (queue, task) pairs.

    A worker is silent after `silent_seconds` without a heartbeat, and late if its event loop lags by
    more than `late_seconds`.
    """
    return {"queues": [queue for queue, _ in pairs], "tasks": [task for _, task in pairs]}


@statement("explain/queue_positions", QueuePosition)
def queue_positions(jobs: Sequence[int], limit: int) -> Params:
    """Return the number of jobs ahead of each, counted up to `limit`."""
    return {"scan_limit": MAX_SCAN_ROWS}


@statement("explain/awaited_locks", AwaitedLockRow)
def awaited_locks(limit: int) -> None: ...


@statement("explain/pending_releases", bool)
def has_pending_releases() -> None: ...
