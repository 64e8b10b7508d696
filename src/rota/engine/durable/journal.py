"""Journal of a durable function: writes entries, reads signals, pauses and ends an attempt.

`Journal` has two implementations: `WorkerJournal`, and one in memory for simulation. An entry is written
when a wait begins and when it ends. A plain function is suspended by SuspendAttempt, raised in its thread
where it waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
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
    from rota.engine.execution.job_services import JobServices, JobStorage
    from rota.model.outcome import Outcome
    from rota.store.jobs import ClaimedJob


class SuspendAttempt(BaseException):
    """End of the attempt of a plain function. The attempt ends even if the code catches this exception."""


ABANDONED_ERROR = '{"type":"Abandoned","message":"","traceback":"","attempt":0}'
"""Error of a step that the code cancelled: by a timeout, or because another branch won a race."""

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
    """Return a copy of the entry, marked as abandoned. The entry itself may be in a write in flight."""
    other = msgspec.structs.replace(entry, result=None, error=ABANDONED_ERROR)
    close_entry(other, tries, began)
    return other


def signal_value(entry: JournalEntry, payload: str | None, read: Reader, default: Any) -> Any:
    if payload is not None:
        return read(payload)
    if default is NO_DEFAULT:
        raise SignalTimeout(f"signal {entry.name!r} did not arrive before the timeout")
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
    """Longest wait that does not suspend the job."""

    def in_main_branch(self) -> bool:
        """True if the current code is on the job's main branch."""

    def now(self) -> datetime: ...

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        """Write entries. Raise ClaimLost if this worker no longer holds the job."""

    async def read_signal(self, name: str) -> str | None:
        """Return the payload of a signal to the run, or None if there is none so far."""

    def check_no_transaction(self) -> None:
        """Raise RotaError if the job is inside a transaction and cannot be suspended."""

    async def pause(self, seconds: float, *, idle: bool) -> None:
        """Wait in the worker. `idle` is true if no branch of the job is active meanwhile."""

    async def end_attempt(self) -> NoReturn:
        """End the code of this attempt at once."""

    def step(self, entry: JournalEntry) -> AbstractAsyncContextManager[RunningStep]: ...

    async def run_in_thread(self, fn: Callable[[], Any]) -> Any: ...


class RunningAttempt(Protocol):
    """Attempt to which a journal belongs."""

    main_task: asyncio.Task[Any] | None
    """Asyncio task of the main branch; None for a plain function."""

    @property
    def in_transaction(self) -> bool: ...

    @property
    def forced_outcome(self) -> Outcome | None:
        """Outcome of the attempt, whatever its code returns."""

    async def is_stored(self, entry: JournalEntry) -> bool:
        """True if the database holds this entry with the same result."""

    def thread_runner(self) -> Callable[[Callable[[], Any]], Awaitable[Any]] | None:
        """Return a function that runs code in the thread that waits for this coroutine, or None."""


class AttemptJournal:
    """Parts of a journal that are the same in a worker and in a simulation."""

    def __init__(self, services: JobServices, job: ClaimedJob, attempt: RunningAttempt) -> None:
        self._services = services
        self._job = job
        self._attempt = attempt

    def in_main_branch(self) -> bool:
        main_task = self._attempt.main_task
        # A plain function has one branch, in its thread.
        return main_task is None or asyncio.current_task() is main_task

    def now(self) -> datetime:
        return self._services.clock.now()

    def check_no_transaction(self) -> None:
        if self._attempt.in_transaction:
            raise RotaError(
                f"job {self._job.job} is inside ctx.transaction(), which would be rolled back; end the "
                "transaction before you sleep, wait or restart"
            )

    async def end_attempt(self) -> NoReturn:
        main_task = self._attempt.main_task
        if main_task is None:
            raise SuspendAttempt
        main_task.cancel()
        outcome = self._attempt.forced_outcome
        assert outcome is not None
        # The code may take time to end, or ignore the cancellation.
        main_task.get_loop().call_later(
            TIMEOUT_MARGIN_SECONDS, self._services.slots.finish_detached, self._job, outcome
        )
        # The cancellation arrives here on the main branch; on another one, when the main branch cancels it.
        await asyncio.sleep(1)
        raise asyncio.CancelledError

    def step(self, entry: JournalEntry) -> AbstractAsyncContextManager[RunningStep]:
        return RunningStep(
            entry, self.run_in_thread, self._services.tracing.step(self._job, entry.name)
        )

    async def run_in_thread(self, fn: Callable[[], Any]) -> Any:
        """Run a plain function: in the job's own thread if it waits for this coroutine, else in a pool."""
        call = self._attempt.thread_runner()
        if call is not None:
            return await call(fn)
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._services.step_threads, lambda: context.run(fn)
        )


class WorkerJournal(AttemptJournal):
    """Journal of a job in a worker."""

    inline_wait_seconds = INLINE_WAIT_SECONDS

    def __init__(
        self,
        services: JobServices,
        storage: JobStorage,
        job: ClaimedJob,
        attempt: RunningAttempt,
    ) -> None:
        super().__init__(services, job, attempt)
        self._storage = storage

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        existing = await self._storage.step_writer.write(self._job, entries)
        for entry in existing:
            if entry.kind == "step" and not await self._attempt.is_stored(entry):
                raise ClaimLost(
                    f"{entry} of job {self._job.job} was stored by another attempt with another result; "
                    "this attempt is discarded"
                )

    async def read_signal(self, name: str) -> str | None:
        run = self._job.job if self._job.run is None else self._job.run
        found = await self._storage.database.run_with_retry(signals.read_payload(run, name))
        return found[0] if found else None

    async def pause(self, seconds: float, *, idle: bool) -> None:
        with self._services.slots.parked(self._job) if idle else nullcontext():
            await asyncio.sleep(seconds)
