"""Queries on Rota's tables, and polling until a condition holds."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from rota import Retry, Rota

ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, delay=0)


async def fetch(dsn: str, query: str) -> Any:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(query.encode())
        return await cursor.fetchall()


async def until(condition: Any, within: float = 60) -> None:
    """Poll until the condition is true, where no event is published for it."""
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.01)


async def equals(dsn: str, query: str, value: int) -> bool:
    return bool((await fetch(dsn, query))[0][0] == value)


async def states(app: Rota, run: int) -> dict[str, str]:
    client = await app.open()
    async with client.database.connection() as connection:
        cursor = await connection.execute(
            "select split_part(task, '.', 2), state from rota.job_state where run = %s", (run,)
        )
        return dict(await cursor.fetchall())


async def row_count_is(app: Rota, table: str, many: int) -> bool:
    return bool(await fetch(app._dsn or "", f"select count(*) from {table}") == [(many,)])


async def nothing() -> None: ...
