"""The worker registry: who is there, who has not been heard of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store import advisory_locks
from rota.store.query import Query

MAX_INLINE_TASKS = 16
"""So many tasks are named with every claim; what a worker knows beyond that, it lists once."""


class BeatAnswer(msgspec.Struct, frozen=True):
    """What a worker hears when it beats."""

    drain_requested: bool
    """Somebody wants it to drain."""
    jobs_to_cancel: list[int]
    """Jobs it holds that somebody wished to cancel."""
    claims: list[int]
    nonces: list[str]
    has_pending_releases: bool
    """Ends are left to be passed on."""
    now: datetime


class ObservedWorker(msgspec.Struct, frozen=True):
    """What one worker sees of another."""

    worker: int
    beats: int
    has_session_lock: bool | None
    """Whether its connection holds its lock; None: it has none."""


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
    """`impatient`: tasks whose jobs are claimed only when they can start; `schedules`: those that its code
    declares."""
    return Query(
        "worker/register",
        {
            "host": host,
            "pid": pid,
            "version": version,
            "engine": rota_version,
            "queues": list(queues),
            "tasks": list(tasks),
            "schedules": list(schedules),
            "capacity": capacity,
            "metadata": msgspec.json.encode(metadata or {}).decode(),
            "skills": list(tasks) if len(tasks) > MAX_INLINE_TASKS else [],
            "impatient": list(no_prefetch),
            "notify": notify,
        },
        int,
    )


def beat(
    worker: int, session_lock: int | None, running: int = 0, lag: float = 0.0
) -> Query[BeatAnswer]:
    """No row: the worker has been declared dead."""
    params = {"worker": worker, "seat": session_lock, "running": running, "lag": lag}
    return Query("worker/beat", params, BeatAnswer)


def list_others(worker: int) -> Query[ObservedWorker]:
    """The others, as they are seen now."""
    return Query("worker/look", {"worker": worker, "space": advisory_locks.WORKER}, ObservedWorker)


def mark_dead(observed: Sequence[ObservedWorker]) -> Query[DeclaredDead]:
    """Declare workers dead, if they have not been heard of since they were seen."""
    params = {
        "workers": [each.worker for each in observed],
        "beats": [each.beats for each in observed],
    }
    return Query("worker/declare", params, DeclaredDead)


def lock_session(session_lock: int) -> Query[bool]:
    """Take the lock that says, as long as this connection lives, that its worker does."""
    return Query("worker/sit", {"space": advisory_locks.WORKER, "seat": session_lock}, bool)


def mark_draining(worker: int) -> Query[Any]:
    return Query("worker/retire", {"worker": worker}, lambda: None)


def mark_stopped(worker: int) -> Query[Any]:
    return Query("worker/leave", {"worker": worker}, lambda: None)


def delete_ended(age: float) -> Query[Any]:
    return Query("worker/forget", {"age": age}, lambda: None)


def request_drain(worker: int) -> Query[str | None]:
    """Ask a worker to leave. Answers its state."""
    return Query("worker/drain", {"worker": worker}, _identity)


def _identity(state: str | None) -> str | None:
    return state
