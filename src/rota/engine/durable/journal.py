"""The journal of a durable function: how entries are stored, when they are read again, and how a job waits.

`Journal` has two implementations: one that a worker uses, and one in memory for simulation. An entry is
written when a wait begins and when it ends. A plain function leaves its attempt by SuspendAttempt,
raised in its thread where it waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from rota.engine.durable.step import RunningStep
from rota.errors import ClaimLost, RotaError, SignalTimeout, StepFailed
from rota.model import codec
from rota.model.durable_context import NO_DEFAULT
from rota.model.journal import JournalEntry
from rota.model.outcome import TIMEOUT_MARGIN_SECONDS
from rota.model.result_types import Reader
from rota.store import signals

if TYPE_CHECKING:
    from rota.engine.execution.job_services import JobServices
    from rota.engine.worker.session import WorkerSession
    from rota.store.jobs import ClaimedJob


class SuspendAttempt(BaseException):
    """Not for catching: whatever the code does with it, the attempt is over."""


ABANDONED_ERROR = '{"type":"Abandoned","message":"","traceback":"","attempt":0}'
"""Of a step that the code did not wait for: a timeout of its own, a race that another branch has won."""

SIGNAL_TIMEOUT_ERROR = '{"type":"SignalTimeout","message":"","traceback":"","attempt":0}'


def open_entry(entry: JournalEntry, seconds: float | None) -> JournalEntry:
    entry.is_open = True
    entry.seconds = seconds
    return entry


def close_entry(entry: JournalEntry, tries: int, began: float) -> None:
    entry.is_open = False
    entry.seconds = None
    entry.tries = tries
    entry.duration = time.perf_counter() - began


def abandoned_entry(entry: JournalEntry, tries: int, began: float) -> JournalEntry:
    """Another one: what was meant to be kept may be on its way."""
    other = msgspec.structs.replace(entry, result=None, error=ABANDONED_ERROR)
    close_entry(other, tries, began)
    return other


def signal_value(entry: JournalEntry, payload: str | None, read: Reader, default: Any) -> Any:
    if payload is not None:
        return read(payload)
    if default is NO_DEFAULT:
        raise SignalTimeout(f"nobody sent signal {entry.name!r} in time")
    return default


def step_failed(entry: JournalEntry, document: str) -> StepFailed:
    error = codec.decode_error(document.encode())
    return StepFailed(
        f"{entry} failed: {error.type}: {error.message}",
        step=entry.name,
        kind=error.type,
        reason=error.message,
    )


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
