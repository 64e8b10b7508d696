"""Queries for the worker registry: register, beat, observe and declare dead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store import advisory_locks
from rota.store.query import Query

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
) -> Query[int]:
    """Register a worker.

    Jobs of the tasks in `no_prefetch` are claimed only when a slot is free. `schedules` are those that
    its code declares.
    """
    return Query(
        "worker/register",
        {
            "host": host,
            "pid": pid,
            "version": version,
            "rota_version": rota_version,
            "queues": list(queues),
            "tasks": list(tasks),
            "schedules": list(schedules),
            "capacity": capacity,
            "metadata": msgspec.json.encode(metadata or {}).decode(),
            "listed_tasks": list(tasks) if len(tasks) > MAX_INLINE_TASKS else [],
            "no_prefetch": list(no_prefetch),
            "notify": notify,
        },
        int,
    )


def beat(
    worker: int, session_lock: int | None, running: int = 0, lag: float = 0.0
) -> Query[BeatAnswer]:
    """Record a heartbeat. No row if the worker was declared dead."""
    params = {"worker": worker, "session_lock": session_lock, "running": running, "lag": lag}
    return Query("worker/beat", params, BeatAnswer)


def list_others(worker: int) -> Query[ObservedWorker]:
    """Return the current state of the other workers."""
    return Query(
        "worker/list_others", {"worker": worker, "namespace": advisory_locks.WORKER}, ObservedWorker
    )


def mark_dead(observed: Sequence[ObservedWorker]) -> Query[DeclaredDead]:
    """Declare workers dead, unless they have beaten since they were observed."""
    params = {
        "workers": [each.worker for each in observed],
        "beats": [each.beats for each in observed],
    }
    return Query("worker/mark_dead", params, DeclaredDead)


def lock_session(session_lock: int) -> Query[bool]:
    """Take the session lock.

    PostgreSQL releases it when the connection ends, which reveals a dead worker.
    """
    return Query(
        "worker/lock_session",
        {"namespace": advisory_locks.WORKER, "session_lock": session_lock},
        bool,
    )


def mark_draining(worker: int) -> Query[Any]:
    return Query("worker/mark_draining", {"worker": worker}, lambda: None)


def mark_stopped(worker: int) -> Query[Any]:
    return Query("worker/mark_stopped", {"worker": worker}, lambda: None)


def delete_ended(age: float) -> Query[Any]:
    return Query("worker/delete_ended", {"age": age}, lambda: None)


def request_drain(worker: int) -> Query[str | None]:
    """Ask a worker to drain. Return its state."""
    return Query("worker/request_drain", {"worker": worker}, _identity)


def _identity(state: str | None) -> str | None:
    return state
