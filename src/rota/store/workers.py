"""The worker registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.store.query import Query


def register(
    host: str, pid: int, version: str, queues: Sequence[str], tasks: Sequence[str], capacity: int
) -> Query[int]:
    return Query(
        "worker/register",
        {
            "host": host,
            "pid": pid,
            "version": version,
            "queues": list(queues),
            "tasks": list(tasks),
            "capacity": capacity,
        },
        int,
    )


def beat(worker: int) -> Query[Any]:
    return Query("worker/beat", {"worker": worker}, lambda: None)


def leave(worker: int) -> Query[Any]:
    return Query("worker/leave", {"worker": worker}, lambda: None)
