"""DBOS: async workflows and steps on uvloop, enqueued by its client, dequeued by one process.

Its statements run in threads, each with a connection of the pool.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSClient, DBOSConfig
from serve import URL, serve
from tally import Tally

STEPS = int(os.environ["BENCH_STEPS"])
CONNECTIONS = 20
POLL = 0.1  # seconds; the default is 1


class Dbos:
    tally: Tally

    async def open(self, dsn: str) -> None:
        self._dsn = dsn
        self._client: DBOSClient | None = None

        @DBOS.step(name="step")
        async def step(n: int) -> dict[str, int]:
            self.tally.saw(n)
            return {"n": n}

        @DBOS.workflow(name="steps")
        async def steps(n: int, url: str) -> int:
            for _ in range(STEPS):
                n = (await step(n))["n"]
            return n

    def _launch(self) -> None:
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": self._dsn,
            "sys_db_pool_size": CONNECTIONS,
            "log_level": "WARNING",
        }
        DBOS(config=config)
        DBOS.launch()

    async def migrate(self) -> None:
        self._launch()
        await DBOS.register_queue_async("bench", polling_interval_sec=POLL)
        self._leave()

    def _leave(self) -> None:
        DBOS.destroy()
        # DBOS set its own executor for the loop and shut it down: set a new default one.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())

    async def enqueue(self, numbers: range) -> None:
        await asyncio.gather(*(self.start(n) for n in numbers))

    async def start(self, n: int) -> None:
        if self._client is None:
            self._client = DBOSClient(system_database_url=self._dsn, application_name="bench")
        options = {"queue_name": "bench", "workflow_name": "steps"}
        await self._client.enqueue_async(options, n, URL)

    @asynccontextmanager
    async def working(self, concurrency: int, haste: bool) -> AsyncIterator[None]:
        self._launch()
        try:
            yield
        finally:
            self._leave()

    async def close(self) -> None:
        if self._client:
            self._client.destroy()


if __name__ == "__main__":
    serve(Dbos())
