"""Rota with one app, one task and the default settings.

`haste` has no effect: the defaults serve both throughput and latency.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from serve import URL, serve
from tally import Tally

from rota import Rota


class Startable(Protocol):
    """Task or flow that takes the arguments of every job here."""

    def bind(self, *, n: int, url: str) -> Any: ...

    async def start(self, *, n: int, url: str) -> Any: ...


class RotaContender:
    tally: Tally

    async def open(self, dsn: str) -> None:
        self._app = Rota(dsn)
        self._work = self.define(self._app)

    def define(self, app: Rota) -> Startable:
        """Return the task or flow that the benchmark starts."""

        @app.task
        async def noop(n: int, url: str) -> None:
            self.tally.saw(n)

        return noop

    async def migrate(self) -> None:
        await self._app.migrate()

    async def enqueue(self, numbers: range) -> None:
        await self._app.start_many([self._work.bind(n=n, url=URL) for n in numbers])

    async def start(self, n: int) -> None:
        await self._work.start(n=n, url=URL)

    async def start_and_wait(self, n: int) -> None:
        run = await self._work.start(n=n, url=URL)
        await run.result(timeout=10)

    @asynccontextmanager
    async def working(self, concurrency: int, haste: bool) -> AsyncIterator[None]:
        async with self._app.worker(concurrency=concurrency):
            yield

    async def close(self) -> None:
        await self._app.close()


if __name__ == "__main__":
    serve(RotaContender())
