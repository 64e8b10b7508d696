"""App that explains its runs, and rows of workers without a process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.model.explanation import Explanation, ExplanationReason


class Explainer:
    """App with explanations of its runs."""

    def __init__(self, app: Rota, connection: AsyncConnection[Any]) -> None:
        self.app = app
        self._connection = connection
        self.gate = asyncio.Event()
        """Event that tasks of the tests wait for, so that they run until the test ends."""

    async def why(self, run: Any) -> Explanation:
        return await self.app.run(getattr(run, "id", run)).explain()

    async def first(self, run: Any) -> ExplanationReason:
        return (await self.why(run)).reasons[0]

    async def until(self, run: Any, code: str, within: float = 60) -> ExplanationReason:
        """Wait until the first reason has this code; return it."""
        found: ExplanationReason | None = None
        try:
            async with asyncio.timeout(within):
                while found is None or found.code != code:
                    found = await self.first(run)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"it is not {code}, but {found}")
        return found

    async def sql(self, text: str, *params: Any) -> list[Any]:
        cursor = await self._connection.execute(text.encode(), params)
        return await cursor.fetchall() if cursor.description is not None else []

    async def register(
        self, queues: list[str] | None = None, tasks: list[str] | None = None, **more: Any
    ) -> int:
        """Insert the row of a worker; there is no process."""
        row = {"host": "away", "pid": 7, "version": "v1", "capacity": 10, **more}
        names, values = ", ".join(row), ", ".join(["%s"] * len(row))
        [[id]] = await self.sql(
            f"insert into rota.workers (queues, tasks, {names}) values (%s, %s, {values}) returning id",
            queues or ["default"],
            tasks or ["work"],
            *row.values(),
        )
        return int(id)
