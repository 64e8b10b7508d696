"""How one job's context reaches the worker it runs in."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from rota.engine.durable import Durable
from rota.engine.ledger import JobLedger
from rota.engine.stepping import inside
from rota.engine.transaction import Fence
from rota.errors import ClaimLost, RotaError
from rota.model import codec
from rota.model.context import CallOf, Failure
from rota.model.outcome import Outcome
from rota.model.replay import Entry
from rota.store import claims, jobs
from rota.store.jobs import Claimed

if TYPE_CHECKING:
    from rota.engine.life import Life

_Calls = queue.SimpleQueue[Callable[[], None] | None]

_thread: ContextVar[_Calls | None] = ContextVar("rota thread", default=None)
"""Where the thread that waits for this coroutine takes calls meanwhile."""


class JobPort:
    __slots__ = (
        "_blocked",
        "_durable",
        "_fence",
        "_interrupted",
        "_job",
        "_life",
        "_loop",
        "_thread",
        "task",
    )

    def __init__(self, life: Life, job: Claimed) -> None:
        self._life = life
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._fence: Fence | None = None
        self._durable: Durable | None = None
        self._blocked: list[asyncio.Task[Any]] = []
        self._interrupted = False
        task = life.tasks[job.task]
        self.task = asyncio.current_task() if task.is_async and not task.policy.isolation else None
        """The job's own line of code; None: it is a plain function's thread."""

    @property
    def draining(self) -> bool:
        return self._life.draining

    async def call(
        self, number: int, calls: Sequence[CallOf[Any]], limit: int | None, collect: bool
    ) -> list[Any]:
        step = inside.get()
        if step is not None:
            raise RotaError(
                f"{step.label} cannot call tasks: when it is replayed nobody would know what it called. "
                "Call them outside of it, which is kept as well"
            )
        # A branch that sleeps does not take the job away from what another waits for here.
        with self.durable.busy():
            number = self.durable.lines.call()
            # A claim of its own first: pinning one that others are in would hold up their ends.
            await self.fence()
            return await self._life.calls.make(self._job, number, calls, limit, collect)

    async def failures(self) -> list[Failure]:
        return await self._life.calls.failures(self._job)

    # What its code comes to

    @property
    def durable(self) -> Durable:
        if self._durable is None:
            job = self._job
            ledger = JobLedger(self._life, job, self)
            limit = self._life.database.settings.payload_limit
            task = self._life.tasks[job.task]
            self._durable = Durable(job.job, job.attempt, job.kept, ledger, limit, task.encode)
        return self._durable

    @property
    def is_durable(self) -> bool:
        return self._durable is not None or bool(self._job.kept)

    @property
    def fate(self) -> Outcome | None:
        return None if self._durable is None else self._durable.fate

    async def end(self) -> None:
        """The code has returned."""
        if self.is_durable:
            await self.durable.end()

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        if not (self.is_durable and self.durable.is_behind):
            self._life.scribe.progress(self._job, done, total, note)

    def say(self, message: str) -> None:
        if not (self.is_durable and self.durable.is_behind):
            self._life.scribe.say(self._job, message)

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

    @property
    def in_transaction(self) -> bool:
        return self._fence is not None and self._fence.is_open

    async def is_kept(self, entry: Entry) -> bool:
        return await self._holding().is_kept(entry)

    def _holding(self) -> Fence:
        if self._fence is None:
            self._fence = Fence(self._life, self._job, self._flush)
        return self._fence

    async def _flush(self) -> None:
        if self._durable is not None:
            self._durable.confirm_failures()
            await self._durable.flush()

    # Waiting in a thread

    def block(self, waiting: Any) -> Any:
        """Wait for a coroutine, in a thread, and do there what it wants done there meanwhile."""
        if threading.get_ident() == self._thread:
            waiting.close()
            raise RuntimeError(
                "ctx.blocking would stop the worker's own loop, which it waits for; async code awaits "
                "ctx.map(…) and ctx.run(…)"
            )
        calls: _Calls = queue.SimpleQueue()
        served: list[asyncio.Task[Any]] = []

        def serve() -> None:
            task = self._loop.create_task(waiting)
            served.append(task)
            self._blocked.append(task)
            if self._interrupted:
                task.cancel()
            task.add_done_callback(lambda _: calls.put(None))

        # The coroutine sees the variables of this thread, as they are here.
        token = _thread.set(calls)
        try:
            self._loop.call_soon_threadsafe(serve)
        except RuntimeError:
            waiting.close()
            raise
        finally:
            _thread.reset(token)
        # Until it has ended: also what it undoes when it is cancelled is done here.
        while (call := calls.get()) is not None:
            call()
        [task] = served
        self._blocked.remove(task)
        if task.cancelled():
            raise CancelledError
        return task.result()

    def caller(self) -> Callable[[Callable[[], Any]], Awaitable[Any]] | None:
        """How to have something done in the thread that waits for this; None: none does."""
        calls = _thread.get()
        if calls is None:
            return None

        async def in_that_thread(fn: Callable[[], Any]) -> Any:
            done: Future[Any] = Future()
            context = copy_context()

            def call() -> None:
                if not done.set_running_or_notify_cancel():
                    return
                try:
                    done.set_result(context.run(fn))
                except BaseException as error:
                    done.set_exception(error)

            calls.put(call)
            return await asyncio.wrap_future(done)

        return in_that_thread

    def interrupt(self) -> None:
        self._interrupted = True
        with suppress(RuntimeError):  # the loop is gone, and with it what was waited for
            self._loop.call_soon_threadsafe(self._cancel_blocked)

    def _cancel_blocked(self) -> None:
        for task in list(self._blocked):
            task.cancel()
