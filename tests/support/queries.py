"""Queries on Rota's tables, and polling until a condition holds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg

from rota import Retry, Rota
from rota.engine.worker.worker import Worker

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
    return bool(await fetch(app.database.dsn or "", f"select count(*) from {table}") == [(many,)])


async def poll_for_jobs(worker: Worker) -> None:
    """Let the worker poll for jobs, and wait for the answers."""
    claim_loop = worker.session.claim_loop
    for _ in range(2):  # the first poll may have been on its way before this call
        claim_loop.poll_now()
        async with asyncio.timeout(60):
            while claim_loop._in_flight:
                await asyncio.sleep(0.005)


def count_beats(dsn: str, worker: int) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select beats from rota.workers where id = %s", (worker,))
        [beats] = row.fetchone() or [0]
    return int(beats)


def wait_for_beats(dsn: str, worker: int, count: int = 10) -> None:
    """Block this thread until the worker has beaten `count` times more."""
    last, deadline = count_beats(dsn, worker) + count, time.monotonic() + 60
    while count_beats(dsn, worker) < last:
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def nothing() -> None: ...
