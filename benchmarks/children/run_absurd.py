"""absurd: its async Python SDK on uvloop, with the schema of absurdctl.

`absurdctl init` sends the same text through psql; here it is sent through the driver. All tasks of a client
share its one connection, so one process has several clients, each with a worker.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd, AsyncTaskContext
from absurdctl import BUNDLED_SCHEMA_SQL
from serve import URL, serve
from tally import Tally

STEPS = int(os.environ["BENCH_STEPS"])
CLIENTS = 10


class Absurd:
    tally: Tally

    async def open(self, dsn: str) -> None:
        self._dsn = dsn
        self._app = self._client()

    def _client(self) -> AsyncAbsurd:
        app = AsyncAbsurd(self._dsn)
        app.register_task("steps")(self._run)
        return app

    async def migrate(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            await connection.execute(BUNDLED_SCHEMA_SQL)
        await self._app.create_queue()

    async def enqueue(self, numbers: range) -> None:
        for n in numbers:
            await self.start(n)

    async def start(self, n: int) -> None:
        await self._app.spawn("steps", {"n": n, "url": URL})

    async def _run(self, params: dict[str, Any], ctx: AsyncTaskContext) -> int:
        n: int = params["n"]
        for number in range(STEPS):
            n = (await ctx.step(f"s{number}", partial(self._step, n)))["n"]
        return n

    async def _step(self, n: int) -> dict[str, int]:
        self.tally.saw(n)
        return {"n": n}

    @asynccontextmanager
    async def working(self, concurrency: int, haste: bool) -> AsyncIterator[None]:
        clients = [self._client() for _ in range(CLIENTS)]
        running = [
            asyncio.create_task(client.start_worker(concurrency=concurrency)) for client in clients
        ]
        try:
            yield
        finally:
            for client in clients:
                client.stop_worker()
            await asyncio.gather(*running)
            for client in clients:
                await client.close()

    async def close(self) -> None:
        await self._app.close()


if __name__ == "__main__":
    serve(Absurd())
