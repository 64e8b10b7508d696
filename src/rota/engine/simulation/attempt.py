"""Attempt of a job's code without a worker.

The code is run by a worker's executors, with the same DurableExecution and AttemptJournal. Only the
storage and the clock differ: a subclass of SimulatedAttempt provides them. An attempt that is discarded
ends at once and has no outcome; only the cleanup of its code (`finally`) still runs.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import wraps
from inspect import iscoroutinefunction
from random import Random
from typing import Any, NoReturn
from uuid import UUID

from rota.engine.durable.execution import DurableExecution
from rota.engine.durable.journal import AttemptJournal, RunningAttempt, SuspendAttempt
from rota.engine.durable.step import RunningStep, current_step
from rota.engine.execution.coroutines import CoroutineExecutor
from rota.engine.execution.executor import DISCARDED, Executor, StopReason, effective_policy
from rota.engine.execution.job_backend import JobBackend
from rota.engine.execution.job_services import JobServices
from rota.engine.execution.process.child_backend import refuse as refuse
from rota.engine.execution.threads import ThreadExecutor
from rota.engine.telemetry.tracing import Tracing
from rota.errors import ReplayMismatch, RotaError
from rota.model.context import BoundCall, Failure
from rota.model.journal import JournalEntry
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

QUIET_SECONDS = 0.02
"""Real seconds without activity in any branch after which the run counts as sleeping."""


Error = BaseException | type[BaseException]


class ScriptedErrors:
    """Errors that a step raises before it runs: one after another, or always the same."""

    def __init__(self, errors: Error | Sequence[Error | None]) -> None:
        self._remaining = list(errors) if isinstance(errors, Sequence) else None
        self._always = None if isinstance(errors, Sequence) else errors

    def raise_next(self) -> None:
        error = self._always
        if self._remaining is not None:
            error = self._remaining.pop(0) if self._remaining else None
        if error is not None:
            raise error


@dataclass(slots=True)
class Stubs:
    """Replacements of steps and calls by name: a function, or the value it would return."""

    steps: Mapping[str, Any] = field(default_factory=dict)
    calls: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, ScriptedErrors] = field(default_factory=dict)

    def stub_for(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that is run for a step of this name."""
        scripted = self.errors.get(name)
        if scripted is None and name not in self.steps:
            return fn
        stub = self.steps.get(name, fn)
        implementation = stub if callable(stub) else lambda *_, **__: stub

        def raise_scripted() -> None:
            if scripted is not None:
                scripted.raise_next()

        # Wrapped like the original function, so that its result is decoded in the same way.
        if iscoroutinefunction(implementation):

            @wraps(fn)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                raise_scripted()
                return await implementation(*args, **kwargs)

            return awaited

        @wraps(fn)
        def called(*args: Any, **kwargs: Any) -> Any:
            raise_scripted()
            return implementation(*args, **kwargs)

        return called


# Attempt


class SimulatedAttempt:
    """Attempt, and its environment in place of a worker session."""

    def __init__(self, task: TaskDefinition, job: ClaimedJob, stubs: Stubs, limit: int) -> None:
        self.job = job
        self.stubs = stubs
        self.limit = limit
        self.is_discarded = False
        """True if the attempt has no outcome, even if its code continues."""
        self.raised: BaseException | None = None
        self.activity_count = 0
        """Number of operations so far."""
        self.task = copy(task)
        self.task.fn = self._wrap_function(task)
        self.is_isolated = task.policy.isolation is not None
        self.task.policy = replace(task.policy, isolation=None)
        self.services = JobServices(
            tasks={task.name: self.task},
            payload_limit=limit,
            clock=self,
            slots=self,
            child_calls=self,
            progress_writer=self,
            tracing=Tracing(),  # off
            is_draining=lambda: False,
        )
        self._journal: SimulatedJournal | None = None
        self._done: asyncio.Future[Outcome]

    def _wrap_function(self, task: TaskDefinition) -> Callable[..., Any]:
        """Return the task's function, wrapped to remember the exception it raises."""
        if task.is_async:

            @wraps(task.fn)
            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await task.fn(*args, **kwargs)
                except BaseException as error:
                    self.raised = self.raised or error
                    raise

        else:

            @wraps(task.fn)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                try:
                    return task.fn(*args, **kwargs)
                except BaseException as error:
                    self.raised = self.raised or error
                    raise

        return wrapped

    async def run(self) -> Outcome:
        """Run the code until it has an outcome."""
        self._done = asyncio.get_running_loop().create_future()

        def on_finished(job: ClaimedJob, outcome: Outcome, _: float) -> None:
            self.finish_detached(job, outcome)

        executor_class = CoroutineExecutor if self.task.is_async else ThreadExecutor
        executor: Executor = executor_class(on_finished, self.limit, self._open_backend)
        retry, timeout = effective_policy(self.job, self.task)
        executor.start(self.job, self.task, without_jitter(retry), timeout)
        try:
            return await self._done
        except asyncio.CancelledError:
            self.is_discarded = True
            executor.stop(self.job, StopReason.CANCELLED)
            raise
        finally:
            executor.close()

    def _open_backend(self, job: ClaimedJob) -> SimulatedBackend:
        backend = SimulatedBackend(self)
        self._journal = backend.journal
        return backend

    def parked(self, job: ClaimedJob) -> AbstractContextManager[None]:
        return nullcontext()

    def finish_detached(self, job: ClaimedJob, outcome: Outcome) -> None:
        """Set the outcome of the attempt, even if its code continues."""
        if not self._done.done():
            self._done.set_result(outcome)

    async def discard(self) -> NoReturn:
        """End this attempt here, without an outcome."""
        assert self._journal is not None
        self.is_discarded = True
        await self._journal.end_attempt()

    # Operations of the code

    def now(self) -> datetime:
        raise NotImplementedError

    def advance_clock(self, since: datetime, seconds: float) -> None:
        """Advance the clock by real time that passed while branches waited."""

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        raise NotImplementedError

    async def on_step_begin(self, entry: JournalEntry) -> None:
        """Called before a step's code runs."""

    def on_step_end(self, entry: JournalEntry) -> None:
        """Called after a step's code has run, whether or not its result was stored."""

    async def read_signal(self, name: str) -> str | None:
        raise NotImplementedError

    async def run_calls(
        self,
        job: ClaimedJob,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]:
        raise NotImplementedError

    async def failures(self, job: ClaimedJob) -> list[Failure]:
        return []

    async def on_return(self) -> None:
        """Called when the code has returned."""

    def store_checkpoint(self, state: str) -> None:
        pass

    def progress(self, job: ClaimedJob, done: float, total: float | None, note: str | None) -> None:
        pass

    def log(self, job: ClaimedJob, message: str) -> None:
        pass

    def refuse(self, operation: str) -> NoReturn:
        """Raise RotaError for an operation that needs a database."""
        step = current_step.get()
        remedy = "test it in one (rota_harness)"
        if step is not None:
            remedy = f"give {step.label} a stand-in (steps=…), or {remedy}"
        raise RotaError(f"{operation} needs a database, and a simulation has none; {remedy}")


class SimulatedJournal(AttemptJournal):
    # The clock is set instead of waiting for a sleep.
    inline_wait_seconds = 0.0

    def __init__(self, simulated: SimulatedAttempt, attempt: RunningAttempt) -> None:
        super().__init__(simulated.services, simulated.job, attempt)
        self._simulated = simulated

    async def write(self, entries: Sequence[JournalEntry]) -> None:
        self._check_not_discarded()
        self._simulated.activity_count += 1
        await self._simulated.write(entries)

    async def read_signal(self, name: str) -> str | None:
        self._check_not_discarded()
        return await self._simulated.read_signal(name)

    async def pause(self, seconds: float, *, idle: bool) -> None:
        """Wait until the other branches are idle. Only branches wait in real time."""
        before, began = self._simulated.now(), time.monotonic()
        activity_count = -1
        while activity_count != self._simulated.activity_count:
            activity_count = self._simulated.activity_count
            await asyncio.sleep(QUIET_SECONDS if idle else QUIET_SECONDS / 10)
        self._simulated.advance_clock(before, time.monotonic() - began)

    @asynccontextmanager
    async def step(self, entry: JournalEntry) -> AsyncIterator[RunningStep]:
        self._check_not_discarded()
        self._simulated.activity_count += 1
        await self._simulated.on_step_begin(entry)
        try:
            async with super().step(entry) as step:
                yield step
        finally:
            self._simulated.activity_count += 1
            self._simulated.on_step_end(entry)

    def _check_not_discarded(self) -> None:
        if self._simulated.is_discarded:
            raise SuspendAttempt if self._attempt.main_task is None else asyncio.CancelledError


class _SimulatedExecution(DurableExecution):
    """DurableExecution with stubs in place of steps."""

    def __init__(self, simulated: SimulatedAttempt, journal: SimulatedJournal) -> None:
        job = simulated.job
        super().__init__(
            job.job,
            job.attempt,
            job.stored_entries,
            journal,
            simulated.limit,
            simulated.task.encode,
        )
        self._simulated = simulated
        self._value_counts: Counter[str] = Counter()

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        retry: Retry | None = None,
        timeout: float | None = None,
    ) -> Any:
        stub = self._simulated.stubs.stub_for(name, fn)
        exact_retry = None if retry is None else without_jitter(retry)
        return await super().step(name, stub, args, kwargs, exact_retry, timeout)

    def value(self, name: str, factory: Callable[[], Any]) -> Any:
        self._value_counts[name] += 1

        def fixed_value() -> Any:
            """Return the same random values in every simulation, so that simulations can be compared."""
            generator = Random(f"{name} {self._value_counts[name]}")
            match name:
                case "random":
                    return generator.random()
                case "uuid":
                    return str(UUID(int=generator.getrandbits(128), version=4))
            return factory()

        return super().value(name, fixed_value)

    def _quarantine(self, error: ReplayMismatch) -> None:
        self._simulated.raised = error
        super()._quarantine(error)


class SimulatedBackend(JobBackend):
    """Services of a job's context that use a simulated attempt."""

    def __init__(self, simulated: SimulatedAttempt) -> None:
        super().__init__(simulated.services, simulated.job)
        self._simulated = simulated
        self.journal = SimulatedJournal(simulated, self)

    @property
    def durable(self) -> DurableExecution:
        if self._simulated.is_isolated:
            refuse("ctx.step, ctx.sleep and the like")
        if self._durable is None:
            self._durable = _SimulatedExecution(self._simulated, self.journal)
        return self._durable

    @property
    def forced_outcome(self) -> Outcome | None:
        return DISCARDED if self._simulated.is_discarded else super().forced_outcome

    async def end(self) -> None:
        await super().end()
        await self._simulated.on_return()

    async def checkpoint(self, state: str) -> None:
        await self._flush()
        self._simulated.store_checkpoint(state)

    async def fence(self) -> int:
        # Also called before child calls; there is no claim to check.
        await self._flush()
        return 0

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        self._simulated.refuse("ctx.transaction()")

    def sync_transaction(self) -> AbstractContextManager[Any]:
        self._simulated.refuse("ctx.sync.transaction()")

    def complete(self, result: Any) -> None:
        self._simulated.refuse("ctx.complete(…)")


def without_jitter(retry: Retry) -> Retry:
    """Return the policy without jitter, so that durations are predictable."""
    return replace(retry, jitter=0.0)
