"""procrastinate: its psycopg connector on uvloop, with a pool as large as the worker needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import procrastinate
from serve import URL, serve
from tally import Tally

CONNECTIONS = 10


class Procrastinate:
    tally: Tally

    async def open(self, dsn: str) -> None:
        connector = procrastinate.PsycopgConnector(
            conninfo=dsn, min_size=CONNECTIONS, max_size=CONNECTIONS
        )
        self._app = procrastinate.App(connector=connector)
        self._noop = self._app.task(name="noop")(self._handle)
        await self._app.open_async()

    async def migrate(self) -> None:
        await self._app.schema_manager.apply_schema_async()

    async def enqueue(self, numbers: range) -> None:
        await self._noop.batch_defer_async(*[{"n": n, "url": URL} for n in numbers])

    async def start(self, n: int) -> None:
        await self._noop.defer_async(n=n, url=URL)

    async def _handle(self, n: int, url: str) -> None:
        self.tally.saw(n)

    @asynccontextmanager
    async def working(self, concurrency: int, haste: bool) -> AsyncIterator[None]:
        running = asyncio.create_task(
            self._app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)
        )
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        await self._app.close_async()


if __name__ == "__main__":
    serve(Procrastinate())
