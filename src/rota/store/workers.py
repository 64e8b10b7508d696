"""The worker registry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rota.store.query import Query

FEW = 16
"""So many tasks are named with every claim; what a worker knows beyond that, it lists once."""


def register(
    host: str,
    pid: int,
    version: str,
    queues: Sequence[str],
    tasks: Sequence[str],
    capacity: int,
    impatient: Collection[str] = (),
) -> Query[int]:
    """`impatient`: tasks that are tried only once."""
    return Query(
        "worker/register",
        {
            "host": host,
            "pid": pid,
            "version": version,
            "queues": list(queues),
            "tasks": list(tasks),
            "capacity": capacity,
            "skills": list(tasks) if len(tasks) > FEW else [],
            "impatient": list(impatient),
        },
        int,
    )


def beat(worker: int) -> Query[Any]:
    return Query("worker/beat", {"worker": worker}, lambda: None)


def leave(worker: int) -> Query[Any]:
    return Query("worker/leave", {"worker": worker}, lambda: None)
