"""One attempt of a job's code where no worker is: what a worker would answer it, somebody else does.

The code is run by the executors of a worker, and what it comes to goes through the same Durable and Replay.
Only where things are kept, and what time it is, is another: a subclass of Stage says so. An attempt that is
stopped ends there and then and counts for nothing; cleaning up (`finally`) is all that its code still does.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import wraps
from inspect import iscoroutinefunction
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import UUID

from rota.engine.childport import refuse as refuse
from rota.engine.coroutines import LoopExecutor
from rota.engine.durable import Durable
from rota.engine.execute import LOST, Executor, Stop, policy_of
from rota.engine.ledger import JobLedger
from rota.engine.port import JobPort
from rota.engine.stepping import Step, inside
from rota.engine.suspended import Suspended
from rota.engine.threads import ThreadExecutor
from rota.engine.tracing import Tracing
from rota.errors import ReplayMismatch, RotaError
from rota.model.context import CallOf, Failure
from rota.model.outcome import Outcome
from rota.model.replay import Entry
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

if TYPE_CHECKING:
    from rota.engine.life import Life

LULL = 0.02
"""Real seconds in which nothing happens in any branch, until the run is taken to be asleep."""


Error = BaseException | type[BaseException]


class Failing:
    """What a step raises before it does anything: one after another, or always the same."""

    def __init__(self, errors: Error | Sequence[Error | None]) -> None:
        self._next = list(errors) if isinstance(errors, Sequence) else None
        self._always = None if isinstance(errors, Sequence) else errors

    def fail(self) -> None:
        error = self._always
        if self._next is not None:
            error = self._next.pop(0) if self._next else None
        if error is not None:
            raise error


@dataclass(slots=True)
class Cast:
    """Who stands in for whom: by name, a function, or what it would have returned."""

    steps: Mapping[str, Any] = field(default_factory=dict)
    calls: Mapping[str, Any] = field(default_factory=dict)
    fails: Mapping[str, Failing] = field(default_factory=dict)

    def play(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function that is run for a step of this name."""
        failing = self.fails.get(name)
        if failing is None and name not in self.steps:
            return fn
        stand_in = self.steps.get(name, fn)
        acts = stand_in if callable(stand_in) else lambda *_, **__: stand_in

        def begin() -> None:
            if failing is not None:
                failing.fail()

        # Like the function it stands for: what it returns is read in the same way.
        if iscoroutinefunction(acts):

            @wraps(fn)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                begin()
                return await acts(*args, **kwargs)

            return awaited

        @wraps(fn)
        def called(*args: Any, **kwargs: Any) -> Any:
            begin()
            return acts(*args, **kwargs)

        return called


# Where it happens


class Stage:
    """One attempt, and what stands around it where a worker would be."""

    draining = False
    threads = None
    tracing = Tracing()  # off

    def __init__(self, task: Definition, job: Claimed, cast: Cast, limit: int) -> None:
        self.job = job
        self.cast = cast
        self.limit = limit
        self.is_over = False
        """It counts for nothing any more, whatever its code does."""
        self.raised: BaseException | None = None
        self.acts = 0
        """How often something has happened."""
        self.task = copy(task)
        self.task.fn = self._watched(task)
        self.is_isolated = task.policy.isolation is not None
        self.task.policy = replace(task.policy, isolation=None)
        self.tasks = {task.name: self.task}
        # All that a worker's life has, and that is asked for here.
        self.calls = self.scribe = self.desk = self
        self.ledger: RehearsalLedger | None = None
        self._done: asyncio.Future[Outcome]

    def _watched(self, task: Definition) -> Callable[..., Any]:
        """The task's function; what comes out of it is remembered."""
        if task.is_async:

            @wraps(task.fn)
            async def watched(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await task.fn(*args, **kwargs)
                except BaseException as error:
                    self.raised = self.raised or error
                    raise

        else:

            @wraps(task.fn)
            def watched(*args: Any, **kwargs: Any) -> Any:
                try:
                    return task.fn(*args, **kwargs)
                except BaseException as error:
                    self.raised = self.raised or error
                    raise

        return watched

    async def perform(self) -> Outcome:
        """Run the code, until it has come to something."""
        self._done = asyncio.get_running_loop().create_future()

        def finished(job: Claimed, outcome: Outcome, _: float) -> None:
            self.let_go(job, outcome)

        kind = LoopExecutor if self.task.is_async else ThreadExecutor
        executor: Executor = kind(finished, self.limit, lambda _: RehearsalPort(self))
        retry, timeout = policy_of(self.job, self.task)
        executor.start(self.job, self.task, exact(retry), timeout)
        try:
            return await self._done
        except asyncio.CancelledError:
            self.is_over = True
            executor.stop(self.job, Stop.CANCELLED)
            raise
        finally:
            executor.close()

    def let_go(self, _: Claimed, outcome: Outcome) -> None:
        """The attempt has come to this, whatever its code still does."""
        if not self._done.done():
            self._done.set_result(outcome)

    async def stop(self) -> NoReturn:
        """End this attempt here, and let it count for nothing."""
        assert self.ledger is not None
        self.is_over = True
        await self.ledger.leave()

    # What its code is answered

    def now(self) -> datetime:
        raise NotImplementedError

    def pass_time(self, since: datetime, seconds: float) -> None:
        """Time has really passed, in a branch beside others."""

    async def write(self, entries: Sequence[Entry]) -> None:
        raise NotImplementedError

    async def begin(self, entry: Entry) -> None:
        """A step's code is about to run."""

    def over(self, entry: Entry) -> None:
        """It has run, and was kept or not."""

    async def look(self, name: str) -> str | None:
        raise NotImplementedError

    async def make(
        self,
        job: Claimed,
        number: int,
        calls: Sequence[CallOf[Any]],
        limit: int | None,
        collect: bool,
    ) -> list[Any]:
        raise NotImplementedError

    async def failures(self, job: Claimed) -> list[Failure]:
        return []

    async def end(self) -> None:
        """The code has returned."""

    def keep_checkpoint(self, state: str) -> None:
        pass

    def progress(self, job: Claimed, done: float, total: float | None, note: str | None) -> None:
        pass

    def say(self, job: Claimed, message: str) -> None:
        pass

    def refuse(self, what: str) -> NoReturn:
        """Something that needs a database is asked for."""
        step = inside.get()
        instead = "test it in one (rota_harness)"
        if step is not None:
            instead = f"give {step.label} a stand-in (steps=…), or {instead}"
        raise RotaError(f"{what} needs a database, and a rehearsal has none; {instead}")


class RehearsalLedger(JobLedger):
    # A sleep is never waited for where the clock can be set instead.
    linger = 0.0

    def __init__(self, stage: Stage, port: JobPort) -> None:
        super().__init__(cast("Life", stage), stage.job, port)
        self._stage = stage

    def now(self) -> datetime:
        return self._stage.now()

    async def write(self, entries: Sequence[Entry]) -> None:
        self._check()
        self._stage.acts += 1
        await self._stage.write(entries)

    async def look(self, name: str) -> str | None:
        self._check()
        return await self._stage.look(name)

    async def pause(self, seconds: float, *, idle: bool) -> None:
        """Only branches wait here: until the others have come to rest as well."""
        before, began = self._stage.now(), time.monotonic()
        acts = -1
        while acts != self._stage.acts:
            acts = self._stage.acts
            await asyncio.sleep(LULL if idle else LULL / 10)
        self._stage.pass_time(before, time.monotonic() - began)

    @asynccontextmanager
    async def step(self, entry: Entry) -> AsyncIterator[Step]:
        self._check()
        self._stage.acts += 1
        await self._stage.begin(entry)
        try:
            async with super().step(entry) as step:
                yield step
        finally:
            self._stage.acts += 1
            self._stage.over(entry)

    def _check(self) -> None:
        if self._stage.is_over:
            raise Suspended if self._port.task is None else asyncio.CancelledError


class _Rehearsed(Durable):
    """The real one; steps may have stand-ins."""

    def __init__(self, stage: Stage, ledger: RehearsalLedger) -> None:
        job = stage.job
        super().__init__(job.job, job.attempt, job.kept, ledger, stage.limit, stage.task.encode)
        self._stage = stage
        self._drawn: Counter[str] = Counter()

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        retry: Retry | None = None,
        timeout: float | None = None,
    ) -> Any:
        plays = self._stage.cast.play(name, fn)
        patient = None if retry is None else exact(retry)
        return await super().step(name, plays, args, kwargs, patient, timeout)

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        self._drawn[name] += 1

        def drawn() -> Any:
            """Chance is the same in every rehearsal, so that one can be compared with another."""
            chance = Random(f"{name} {self._drawn[name]}")
            match name:
                case "random":
                    return chance.random()
                case "uuid":
                    return str(UUID(int=chance.getrandbits(128), version=4))
            return make()

        return super().value(name, drawn)

    def _set_aside(self, error: ReplayMismatch) -> None:
        self._stage.raised = error
        super()._set_aside(error)


class RehearsalPort(JobPort):
    """How a context reaches the stage it runs on; what it waits for in a thread, it waits for as ever."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(cast("Life", stage), stage.job)
        self._stage = stage
        self._ledger = stage.ledger = RehearsalLedger(stage, self)

    @property
    def durable(self) -> Durable:
        if self._stage.is_isolated:
            refuse("ctx.step, ctx.sleep and the like")
        if self._durable is None:
            self._durable = _Rehearsed(self._stage, self._ledger)
        return self._durable

    @property
    def fate(self) -> Outcome | None:
        return LOST if self._stage.is_over else super().fate

    async def end(self) -> None:
        await super().end()
        await self._stage.end()

    async def checkpoint(self, state: str) -> None:
        await self._flush()
        self._stage.keep_checkpoint(state)

    async def fence(self) -> int:
        # Asked for before calls are made, too; there is nobody to hold the job against.
        await self._flush()
        return 0

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        self._stage.refuse("ctx.transaction()")

    def blocking_transaction(self) -> AbstractContextManager[Any]:
        self._stage.refuse("ctx.blocking.transaction()")

    def complete(self, result: Any) -> None:
        self._stage.refuse("ctx.complete(…)")


def exact(retry: Retry) -> Retry:
    """Without chance, so that one can say how long it took."""
    return replace(retry, jitter=0.0)
