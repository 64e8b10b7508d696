"""Jobs that have not ended, read in read-only transactions before a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.store.database import Database, run
from rota.store.query import Query, Row, statement


class InFlightTaskRow(msgspec.Struct, frozen=True):
    task: str
    jobs: int
    quarantined: int
    """Jobs in quarantine, included in `jobs`."""


class InFlightJobRow(msgspec.Struct, frozen=True):
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
    """True if the job has recorded steps."""


@statement("view/in_flight_tasks", InFlightTaskRow)
def tasks() -> None: ...


@statement("view/in_flight_jobs", InFlightJobRow)
def jobs(task: str, limit: int, *, newest_first: bool = False) -> None:
    """Return the jobs of one task: those that have begun, then those that wait; each oldest first."""


class ReadOnlySession:
    """Runs queries in read-only transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, transactions: Sequence[Sequence[Query[Any]]]) -> list[list[list[Any]]]:
        return [await self._run(transaction) for transaction in transactions]

    async def run_with_retry(self, query: Query[Row]) -> list[Row]:
        [rows] = await self._run([query])
        return rows

    async def _run(self, queries: Sequence[Query[Any]]) -> list[list[Any]]:
        async with self._database.transaction() as connection:
            await connection.execute("set transaction read only")
            return [await run(connection, query, self._database.schema) for query in queries]
