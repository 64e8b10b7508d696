"""Rota with a job that reports its start at once, and then sleeps for BENCH_HOLD seconds.

Each number belongs to one of several queues. The worker to be killed serves one of them, so it holds one
job; the workers that stay serve all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from run_rota import RotaContender
from serve import URL, serve

from rota import Rota
from rota.app.task import Task

HOLD = float(os.environ["BENCH_HOLD"])
QUEUES = os.environ["BENCH_QUEUES"].split(",")


class MortalContender(RotaContender):
    _work: Task[..., None]

    def define(self, app: Rota) -> Task[..., None]:
        @app.task
        async def hold(n: int, url: str) -> None:
            self.tally.say(n)
            await asyncio.sleep(HOLD)

        return hold

    async def start(self, n: int) -> None:
        await self._work.options(queue=QUEUES[n % len(QUEUES)]).start(n=n, url=URL)

    @asynccontextmanager
    async def working(self, concurrency: int, haste: bool) -> AsyncIterator[None]:
        async with self._app.worker(queues=QUEUES, concurrency=concurrency):
            yield


if __name__ == "__main__":
    serve(MortalContender())
