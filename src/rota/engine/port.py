"""How one job's context reaches the worker it runs in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any

from rota.engine.transaction import Fence
from rota.errors import ClaimLost
from rota.model import codec
from rota.model.context import CallOf, Failure
from rota.store import claims, jobs
from rota.store.jobs import Claimed

if TYPE_CHECKING:
    from rota.engine.life import Life


class JobPort:
    __slots__ = ("_blocked", "_fence", "_interrupted", "_job", "_life", "_loop", "_thread")

    def __init__(self, life: Life, job: Claimed) -> None:
        self._life = life
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._fence: Fence | None = None
        self._blocked: Future[Any] | None = None
        self._interrupted = False

    @property
    def draining(self) -> bool:
        return self._life.draining

    async def call(
        self, number: int, calls: Sequence[CallOf[Any]], limit: int | None, collect: bool
    ) -> list[Any]:
        # A claim of its own first: pinning one that others are in would hold up their ends.
        await self.fence()
        return await self._life.calls.make(self._job, number, calls, limit, collect)

    async def failures(self) -> list[Failure]:
        return await self._life.calls.failures(self._job)

    # Holding on to the job

    async def checkpoint(self, state: str) -> None:
        worker, job = self._life.id, self._job
        limit = self._life.database.settings.payload_limit
        codec.check_size(len(state), f"the checkpoint of task {job.task!r}", limit)
        await self.fence()
        _, kept = await self._life.database.insist_on(
            [
                claims.pin(worker, job.claim, job.job),
                jobs.checkpoint(worker, job.claim, job.job, state),
            ]
        )
        if not kept:
            raise ClaimLost(f"job {job.job} is no longer held by this worker: nothing was kept")

    async def fence(self) -> int:
        return await self._holding().take()

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._holding().transaction()

    def blocking_transaction(self) -> AbstractContextManager[Any]:
        return self._holding().blocking_transaction(self.block)

    def complete(self, result: Any) -> None:
        self._holding().complete(result)

    def _holding(self) -> Fence:
        if self._fence is None:
            self._fence = Fence(self._life, self._job)
        return self._fence

    # Waiting in a thread

    def block(self, waiting: Any) -> Any:
        if threading.get_ident() == self._thread:
            waiting.close()
            raise RuntimeError(
                "ctx.blocking would stop the worker's own loop, which it waits for; async code awaits "
                "ctx.map(…) and ctx.run(…)"
            )
        self._blocked = asyncio.run_coroutine_threadsafe(waiting, self._loop)
        if self._interrupted:
            self._blocked.cancel()
        return self._blocked.result()

    def interrupt(self) -> None:
        self._interrupted = True
        if self._blocked is not None:
            self._blocked.cancel()
