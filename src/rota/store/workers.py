"""The worker registry: who is there, who has not been heard of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store import advisory
from rota.store.query import Query

FEW = 16
"""So many tasks are named with every claim; what a worker knows beyond that, it lists once."""


class Told(msgspec.Struct, frozen=True):
    """What a worker hears when it beats."""

    asked: bool
    """Somebody wants it to drain."""
    unwanted: list[int]
    """Jobs it holds that somebody wished to cancel."""
    claims: list[int]
    nonces: list[str]
    echoes: bool
    """Ends are left to be passed on."""
    now: datetime


class Seen(msgspec.Struct, frozen=True):
    """What one worker sees of another."""

    worker: int
    beats: int
    seated: bool | None
    """Whether its connection holds its lock; None: it has none."""


class Declared(msgspec.Struct, frozen=True):
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
    impatient: Collection[str] = (),
    *,
    schedules: Sequence[str] = (),
    engine: str = "",
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
            "engine": engine,
            "queues": list(queues),
            "tasks": list(tasks),
            "schedules": list(schedules),
            "capacity": capacity,
            "metadata": msgspec.json.encode(metadata or {}).decode(),
            "skills": list(tasks) if len(tasks) > FEW else [],
            "impatient": list(impatient),
            "notify": notify,
        },
        int,
    )


def beat(worker: int, seat: int | None, running: int = 0, lag: float = 0.0) -> Query[Told]:
    """No row: the worker has been declared dead."""
    params = {"worker": worker, "seat": seat, "running": running, "lag": lag}
    return Query("worker/beat", params, Told)


def look(worker: int) -> Query[Seen]:
    """The others, as they are seen now."""
    return Query("worker/look", {"worker": worker, "space": advisory.WORKER}, Seen)


def declare(seen: Sequence[Seen]) -> Query[Declared]:
    """Declare workers dead, if they have not been heard of since they were seen."""
    params = {"workers": [each.worker for each in seen], "beats": [each.beats for each in seen]}
    return Query("worker/declare", params, Declared)


def sit(seat: int) -> Query[bool]:
    """Take the lock that says, as long as this connection lives, that its worker does."""
    return Query("worker/sit", {"space": advisory.WORKER, "seat": seat}, bool)


def retire(worker: int) -> Query[Any]:
    return Query("worker/retire", {"worker": worker}, lambda: None)


def leave(worker: int) -> Query[Any]:
    return Query("worker/leave", {"worker": worker}, lambda: None)


def forget(age: float) -> Query[Any]:
    return Query("worker/forget", {"age": age}, lambda: None)


def drain(worker: int) -> Query[str | None]:
    """Ask a worker to leave. Answers its state."""
    return Query("worker/drain", {"worker": worker}, _same)


def _same(state: str | None) -> str | None:
    return state
