"""Where what a job's code comes to is kept, and how the job waits: by a worker, or in a rehearsal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from rota.engine.execute import TIMEOUT_MARGIN_SECONDS
from rota.engine.stepping import RunningStep
from rota.engine.suspended import SuspendAttempt
from rota.errors import ClaimLost, RotaError
from rota.model.replay import JournalEntry
from rota.store import signals

if TYPE_CHECKING:
    from rota.engine.life import WorkerSession
    from rota.engine.port import JobServices
    from rota.store.jobs import ClaimedJob

INLINE_WAIT_SECONDS = 1.0


class Journal(Protocol):
    inline_wait_seconds: float
    """Seconds that are waited for here rather than elsewhere."""

    def in_main_branch(self) -> bool:
        """Whether this is the job's own line of code, not a branch beside it."""

    def now(self) -> datetime: ...

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        """Keep things. Raises ClaimLost."""

    async def read_signal(self, name: str) -> str | None:
        """What was said to the run under a name."""

    def check_no_transaction(self) -> None:
        """Raise if the job must not leave: it is inside a transaction."""

    async def pause(self, seconds: float, *, idle: bool) -> None:
        """Wait here. `idle`: nothing of the job does anything meanwhile."""

    async def end_attempt(self) -> NoReturn:
        """End this attempt's code, here and now."""

    def step(self, entry: JournalEntry) -> AbstractAsyncContextManager[RunningStep]: ...

    async def run_in_thread(self, fn: Callable[[], Any]) -> Any: ...


class WorkerJournal:
    """The worker's."""

    inline_wait_seconds = INLINE_WAIT_SECONDS

    def __init__(self, session: WorkerSession, job: ClaimedJob, services: JobServices) -> None:
        self._session = session
        self._job = job
        self._services = services

    def in_main_branch(self) -> bool:
        main_task = self._services.main_task
        # Plain functions have one line, in their thread.
        return main_task is None or asyncio.current_task() is main_task

    def now(self) -> datetime:
        return self._session.clock.now()

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        existing = await self._session.step_writer.write(self._job, entries)
        for entry in existing:
            if entry.kind == "step" and not await self._services.is_stored(entry):
                raise ClaimLost(
                    f"{entry} of job {self._job.job} was kept by another attempt, which came to something "
                    "else; this one counts for nothing"
                )

    async def read_signal(self, name: str) -> str | None:
        run = self._job.job if self._job.run is None else self._job.run
        found = await self._session.database.run_with_retry(signals.read_payload(run, name))
        return found[0] if found else None

    def check_no_transaction(self) -> None:
        if self._services.in_transaction:
            raise RotaError(
                f"job {self._job.job} is inside ctx.transaction(), which would be undone if it left: end "
                "that first, then sleep, wait or restart"
            )

    async def pause(self, seconds: float, *, idle: bool) -> None:
        with self._session.slots.parked(self._job) if idle else nullcontext():
            await asyncio.sleep(seconds)

    async def end_attempt(self) -> NoReturn:
        main_task = self._services.main_task
        if main_task is None:
            raise SuspendAttempt
        main_task.cancel()
        outcome = self._services.forced_outcome
        assert outcome is not None
        # Code may take its time, and need not heed it.
        main_task.get_loop().call_later(
            TIMEOUT_MARGIN_SECONDS, self._session.slots.finish_detached, self._job, outcome
        )
        # Here if this is the job's own line; else when it cancels its branches.
        await asyncio.sleep(1)
        raise asyncio.CancelledError

    def step(self, entry: JournalEntry) -> AbstractAsyncContextManager[RunningStep]:
        return RunningStep(
            entry, self.run_in_thread, self._session.tracing.step(self._job, entry.name)
        )

    async def run_in_thread(self, fn: Callable[[], Any]) -> Any:
        """Run plain code: in the job's own thread, if it has one and waits there."""
        call = self._services.thread_runner()
        if call is not None:
            return await call(fn)
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._session.step_threads, lambda: context.run(fn)
        )
