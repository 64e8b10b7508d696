"""Queries for the worker registry: register, beat, observe and declare dead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store import advisory_locks
from rota.store.query import Params, Query, identity, no_row, statement

MAX_INLINE_TASKS = 16
"""Number of tasks up to which they are sent with every claim. With more, they are stored once."""


class BeatAnswer(msgspec.Struct, frozen=True):
    """Answer to a heartbeat."""

    drain_requested: bool
    """True if the worker was asked to drain."""
    jobs_to_cancel: list[int]
    """Jobs of this worker with a cancel request."""
    claims: list[int]
    nonces: list[str]
    has_pending_releases: bool
    """True if releases are left in `pending_releases`."""
    now: datetime


class ObservedWorker(msgspec.Struct, frozen=True):
    """State of another worker at one observation."""

    worker: int
    beats: int
    has_session_lock: bool | None
    """True if its connection holds the session lock; None if it has no session lock."""


class DeclaredDead(msgspec.Struct, frozen=True):
    worker: int
    host: str
    pid: int


@statement("worker/register", int)
def register(
    host: str,
    pid: int,
    version: str,
    queues: Sequence[str],
    tasks: Sequence[str],
    capacity: int,
    no_prefetch: Collection[str] = (),
    *,
    schedules: Sequence[str] = (),
    rota_version: str = "",
    metadata: Mapping[str, Any] | None = None,
    notify: bool = False,
) -> Params:
    """Register a worker.

    Jobs of the tasks in `no_prefetch` are claimed only when a slot is free. `schedules` are those that
    its code declares.
    """
    return {
        "metadata": msgspec.json.encode(metadata or {}).decode(),
        "listed_tasks": tasks if len(tasks) > MAX_INLINE_TASKS else [],
        "no_prefetch": list(no_prefetch),
    }


@statement("worker/beat", BeatAnswer)
def beat(worker: int, session_lock: int | None, running: int = 0, lag: float = 0.0) -> None:
    """Record a heartbeat. No row if the worker was declared dead."""


@statement("worker/list_others", ObservedWorker)
def list_others(worker: int) -> Params:
    """Return the current state of the other workers."""
    return {"namespace": advisory_locks.WORKER}


def mark_dead(observed: Sequence[ObservedWorker]) -> Query[DeclaredDead]:
    """Declare workers dead, unless they have beaten since they were observed."""
    params = {
        "workers": [each.worker for each in observed],
        "beats": [each.beats for each in observed],
    }
    return Query("worker/mark_dead", params, DeclaredDead)


@statement("worker/lock_session", bool)
def lock_session(session_lock: int) -> Params:
    """Take the session lock.

    PostgreSQL releases it when the connection ends, which reveals a dead worker.
    """
    return {"namespace": advisory_locks.WORKER}


@statement("worker/mark_draining", no_row)
def mark_draining(worker: int) -> None: ...


@statement("worker/mark_stopped", no_row)
def mark_stopped(worker: int) -> None: ...


@statement("worker/delete_ended", no_row)
def delete_ended(age: float) -> None: ...


def request_drain(worker: int) -> Query[str | None]:
    """Ask a worker to drain. Return its state."""
    return Query("worker/request_drain", {"worker": worker}, identity)
