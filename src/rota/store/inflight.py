"""What has not ended: asked before new code comes, in transactions that can write nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store.database import Database, run
from rota.store.query import Query, Row


class TaskLine(msgspec.Struct, frozen=True):
    """Jobs of one task that have not ended."""

    task: str
    jobs: int
    quarantined: int
    """Of these, tried no more until somebody decides."""


class JobLine(msgspec.Struct, frozen=True):
    """One that has not ended."""

    job: int
    run: int | None
    queue: str
    state: str
    attempt: int
    created: datetime
    args: str
    options: str | None
    inputs: str | None
    checkpoint: str | None
    begun: bool
    """Whether there are steps of it."""


def tasks() -> Query[TaskLine]:
    return Query("view/inflight_tasks", {}, TaskLine)


def jobs(task: str, limit: int, *, newest: bool = False) -> Query[JobLine]:
    """Those of one task: first those that are under way, then those that wait; the oldest first."""
    params = {"task": task, "limit": limit, "newest": newest}
    return Query("view/inflight_jobs", params, JobLine)


class Looking:
    """Asks the database, in transactions in which nothing can be written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, segments: Sequence[Sequence[Query[Any]]]) -> list[list[list[Any]]]:
        """Run several transactions."""
        return [await self._ask(segment) for segment in segments]

    async def insist(self, query: Query[Row]) -> list[Row]:
        [rows] = await self._ask([query])
        return rows

    async def _ask(self, queries: Sequence[Query[Any]]) -> list[list[Any]]:
        async with self._database.transaction() as connection:
            await connection.execute("set transaction read only")
            return [await run(connection, query, self._database.schema) for query in queries]
