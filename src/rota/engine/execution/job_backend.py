"""Backend of a job's context: what `ctx` does, in terms of the services of its worker."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from contextvars import ContextVar, copy_context
from typing import Any

from rota.engine.durable.execution import DurableExecution
from rota.engine.durable.journal import WorkerJournal
from rota.engine.durable.step import current_step
from rota.engine.execution.job_services import JobServices, JobStorage
from rota.engine.execution.job_transaction import JobTransaction
from rota.errors import ClaimLost, RotaError
from rota.model import codec
from rota.model.context import BoundCall, Failure
from rota.model.journal import JournalEntry
from rota.model.outcome import Outcome
from rota.store import claims, jobs
from rota.store.jobs import ClaimedJob

_ThreadCalls = queue.SimpleQueue[Callable[[], None] | None]

_waiting_thread: ContextVar[_ThreadCalls | None] = ContextVar("rota thread", default=None)
"""Queue of calls for the thread that waits for the current coroutine; None if no thread waits."""


class JobBackend:
    __slots__ = (
        "_blocked_tasks",
        "_durable",
        "_interrupted",
        "_job",
        "_job_transaction",
        "_loop",
        "_loop_thread",
        "_services",
        "main_task",
    )

    def __init__(self, services: JobServices, job: ClaimedJob) -> None:
        self._services = services
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._job_transaction: JobTransaction | None = None
        self._durable: DurableExecution | None = None
        self._blocked_tasks: list[asyncio.Task[Any]] = []
        self._interrupted = False
        task = services.tasks[job.task]
        self.main_task = (
            asyncio.current_task() if task.is_async and not task.policy.isolation else None
        )
        """Asyncio task of the job's main branch; None for a plain function or a child process."""

    @property
    def draining(self) -> bool:
        return self._services.is_draining()

    async def run_children(
        self,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]:
        step = current_step.get()
        if step is not None:
            raise RotaError(
                f"{step.label} cannot call tasks, because a replay would not find the calls; call them "
                "outside of the step, where their results are stored too"
            )
        # While this branch waits for calls, a sleep in another branch must not suspend the job.
        with self.durable.busy():
            number = self.durable.branches.next_call_number()
            # Get a separate claim first: locking a claim shared with other jobs would delay their outcomes.
            await self.fence()
            return await self._services.child_calls.run_calls(
                self._job, number, calls, concurrency, return_exceptions
            )

    async def failures(self) -> list[Failure]:
        return await self._services.child_calls.failures(self._job)

    # Durable functions

    @property
    def durable(self) -> DurableExecution:
        if self._durable is None:
            job = self._job
            journal = WorkerJournal(self._services, self._storage, job, self)
            limit = self._services.payload_limit
            task = self._services.tasks[job.task]
            self._durable = DurableExecution(
                job.job, job.attempt, job.stored_entries, journal, limit, task.encode
            )
        return self._durable

    @property
    def is_durable(self) -> bool:
        return self._durable is not None or bool(self._job.stored_entries)

    @property
    def forced_outcome(self) -> Outcome | None:
        return None if self._durable is None else self._durable.forced_outcome

    async def end(self) -> None:
        """Finish the durable execution after the code has returned."""
        if self.is_durable:
            await self.durable.end()

    def progress(self, done: float, total: float | None, note: str | None) -> None:
        if not (self.is_durable and self.durable.is_replaying):
            self._services.progress_writer.progress(self._job, done, total, note)

    def log(self, message: str) -> None:
        if not (self.is_durable and self.durable.is_replaying):
            self._services.progress_writer.log(self._job, message)

    # Checkpoint, fence and transaction

    async def checkpoint(self, state: str) -> None:
        storage, job = self._storage, self._job
        worker = storage.worker
        codec.check_size(
            len(state), f"the checkpoint of task {job.task!r}", self._services.payload_limit
        )
        await self.fence()
        _, stored = await storage.database.transact_with_retry(
            [
                claims.lock_shared(worker, job.claim, job.job),
                jobs.checkpoint(worker, job.claim, job.job, state),
            ]
        )
        if not stored:
            raise ClaimLost(f"job {job.job} is no longer held by this worker; nothing was stored")

    async def fence(self) -> int:
        return await self._ensure_transaction().acquire_own_claim()

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._ensure_transaction().transaction()

    def sync_transaction(self) -> AbstractContextManager[Any]:
        return self._ensure_transaction().sync_transaction(self.run_sync)

    def complete(self, result: Any) -> None:
        self._ensure_transaction().complete(result)

    @property
    def in_transaction(self) -> bool:
        return self._job_transaction is not None and self._job_transaction.is_open

    async def is_stored(self, entry: JournalEntry) -> bool:
        return await self._ensure_transaction().is_stored(entry)

    @property
    def _storage(self) -> JobStorage:
        if self._services.storage is None:
            raise RotaError("a simulation has no database")
        return self._services.storage

    def _ensure_transaction(self) -> JobTransaction:
        if self._job_transaction is None:
            self._job_transaction = JobTransaction(
                self._storage,
                self._services.tracing,
                self._services.tasks[self._job.task],
                self._job,
                self._flush,
            )
        return self._job_transaction

    async def _flush(self) -> None:
        if self._durable is not None:
            self._durable.confirm_failures()
            await self._durable.flush()

    # Plain functions, which wait in a thread

    def run_sync(self, coroutine: Any) -> Any:
        """Run a coroutine in the event loop and wait for it in this thread.

        Meanwhile, the thread runs the functions that the coroutine sends to it with `thread_runner`.
        """
        if threading.get_ident() == self._loop_thread:
            coroutine.close()
            raise RuntimeError(
                "ctx.sync would stop the worker's own loop, which it waits for; async code awaits "
                "ctx.map(…) and ctx.run(…)"
            )
        calls: _ThreadCalls = queue.SimpleQueue()
        tasks: list[asyncio.Task[Any]] = []

        def start_task() -> None:
            task = self._loop.create_task(coroutine)
            tasks.append(task)
            self._blocked_tasks.append(task)
            if self._interrupted:
                task.cancel()
            task.add_done_callback(lambda _: calls.put(None))

        # The coroutine inherits the context variables of this thread, including `_waiting_thread`.
        token = _waiting_thread.set(calls)
        try:
            self._loop.call_soon_threadsafe(start_task)
        except RuntimeError:
            coroutine.close()
            raise
        finally:
            _waiting_thread.reset(token)
        # Serve calls until the task has ended: a cancelled one may still roll back in this thread.
        while (call := calls.get()) is not None:
            call()
        [task] = tasks
        self._blocked_tasks.remove(task)
        if task.cancelled():
            raise CancelledError
        return task.result()

    def thread_runner(self) -> Callable[[Callable[[], Any]], Awaitable[Any]] | None:
        """Return a function that runs code in the thread that waits for this coroutine, or None."""
        calls = _waiting_thread.get()
        if calls is None:
            return None

        async def run_in_thread(fn: Callable[[], Any]) -> Any:
            future: Future[Any] = Future()
            context = copy_context()

            def call() -> None:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    future.set_result(context.run(fn))
                except BaseException as error:
                    future.set_exception(error)

            calls.put(call)
            return await asyncio.wrap_future(future)

        return run_in_thread

    def interrupt(self) -> None:
        self._interrupted = True
        with suppress(RuntimeError):  # the loop is closed, so no task is left to cancel
            self._loop.call_soon_threadsafe(self._cancel_blocked)

    def _cancel_blocked(self) -> None:
        for task in list(self._blocked_tasks):
            task.cancel()
