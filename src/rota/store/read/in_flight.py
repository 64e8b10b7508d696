"""What has not ended: asked before new code comes, in transactions that can write nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store.database import Database, run
from rota.store.query import Query, Row


class InFlightTaskRow(msgspec.Struct, frozen=True):
    """Jobs of one task that have not ended."""

    task: str
    jobs: int
    quarantined: int
    """Of these, tried no more until somebody decides."""


class InFlightJobRow(msgspec.Struct, frozen=True):
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
    has_steps: bool
    """Whether there are steps of it."""


def tasks() -> Query[InFlightTaskRow]:
    return Query("view/inflight_tasks", {}, InFlightTaskRow)


def jobs(task: str, limit: int, *, newest_first: bool = False) -> Query[InFlightJobRow]:
    """Those of one task: first those that are under way, then those that wait; the oldest first."""
    params = {"task": task, "limit": limit, "newest": newest_first}
    return Query("view/inflight_jobs", params, InFlightJobRow)


class ReadOnlySession:
    """Asks the database, in transactions in which nothing can be written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, transactions: Sequence[Sequence[Query[Any]]]) -> list[list[list[Any]]]:
        """Run several transactions."""
        return [await self._run(transaction) for transaction in transactions]

    async def run_with_retry(self, query: Query[Row]) -> list[Row]:
        [rows] = await self._run([query])
        return rows

    async def _run(self, queries: Sequence[Query[Any]]) -> list[list[Any]]:
        async with self._database.transaction() as connection:
            await connection.execute("set transaction read only")
            return [await run(connection, query, self._database.schema) for query in queries]
