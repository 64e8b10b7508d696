"""pgqueuer: asyncpg on uvloop, logged tables, autovacuum set as its guide advises.

One process has several queue managers, each with its own connection, as in the project's own benchmark: a
manager spends most of its time waiting for its only connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from serve import URL, serve
from tally import Tally

MANAGERS = 3
BATCH = 200


class Pgqueuer:
    tally: Tally

    async def open(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection = await asyncpg.connect(dsn)
        self._queries = Queries(AsyncpgDriver(self._connection))

    async def migrate(self) -> None:
        await self._queries.install()
        await self._queries.optimize_autovacuum()

    async def enqueue(self, numbers: range) -> None:
        await self._queries.enqueue(
            ["noop"] * len(numbers),
            [json.dumps({"n": n, "url": URL}).encode() for n in numbers],
            [0] * len(numbers),
        )

    async def start(self, n: int) -> None:
        await self._queries.enqueue("noop", json.dumps({"n": n, "url": URL}).encode())

    async def _noop(self, job: Job) -> None:
        self.tally.saw(json.loads(job.payload or b"")["n"])

    @asynccontextmanager
    async def working(self, concurrency: int, haste: bool) -> AsyncIterator[None]:
        connections = [await asyncpg.connect(self._dsn) for _ in range(MANAGERS if haste else 1)]
        managers = [PgQueuer(AsyncpgDriver(connection)) for connection in connections]
        for manager in managers:
            manager.entrypoint("noop")(self._noop)
        batch = {"batch_size": BATCH} if haste else {}
        running = [asyncio.create_task(manager.run(**batch)) for manager in managers]
        try:
            yield
        finally:
            for manager in managers:
                manager.shutdown.set()
            await asyncio.gather(*running)
            for connection in connections:
                await connection.close()

    async def close(self) -> None:
        await self._connection.close()


if __name__ == "__main__":
    serve(Pgqueuer())
