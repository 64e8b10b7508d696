"""Context of a job: data and operations of one attempt, as in `async def resize(ctx: Context, …)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, Protocol, TypeVar, overload

import msgspec

from rota.errors import RunFailed
from rota.model import codec
from rota.model.durable_context import DurableBackend, DurableMethods, StepOptions
from rota.model.outcome import Outcome
from rota.model.settings import Duration

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from rota.model.retry import Retry

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class BoundCall(Protocol[R_co]):
    """Task or flow with its arguments, made by `bind(…)`."""

    @property
    def name(self) -> str: ...

    def read(self, result: Any, /) -> R_co: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed job of this run: the name of its task in the flow, and its error."""

    job: int
    task: str
    kind: str
    reason: str


class ContextBackend(Protocol):
    """Operations of the worker that a context uses."""

    async def run_children(
        self,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]: ...

    async def failures(self) -> list[Failure]: ...

    @property
    def draining(self) -> bool: ...

    async def checkpoint(self, state: str) -> None: ...

    async def fence(self) -> int: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def sync_transaction(self) -> AbstractContextManager[Any]: ...

    def complete(self, result: Any) -> None: ...

    @property
    def durable(self) -> DurableBackend: ...

    @property
    def is_durable(self) -> bool:
        """True if the code has created journal entries, or the job has stored ones."""

    @property
    def forced_outcome(self) -> Outcome | None:
        """Outcome of the attempt regardless of its code, because the job has left the worker; None if it
        has not."""

    async def end(self) -> None:
        """Finish the attempt after the code has returned."""

    def progress(self, done: float, total: float | None, note: str | None) -> None: ...

    def log(self, message: str) -> None: ...

    def run_sync(self, coroutine: Any) -> Any:
        """Run a coroutine from a thread and wait for it."""

    def interrupt(self) -> None:
        """Stop waiting, because the job is to be cancelled."""


class _TickOptions(msgspec.Struct):
    """Options of a job that describe the tick of its schedule."""

    tick: datetime | None = None
    backfilled: bool = False


_tick_options = msgspec.json.Decoder(_TickOptions)


class Context(DurableMethods):
    """Context of one attempt at a job."""

    __slots__ = (
        "_backend",
        "_cancelled",
        "_checkpoint",
        "_map_count",
        "_options",
        "attempt",
        "job_id",
        "queue",
        "run_id",
        "task",
    )

    def __init__(
        self,
        job_id: int,
        run_id: int,
        task: str,
        queue: str,
        attempt: int,
        backend: ContextBackend | None = None,
        checkpoint: str | None = None,
        options: str | None = None,
    ) -> None:
        self._options = options
        self.job_id = job_id
        self.run_id = run_id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self._cancelled = False
        self._map_count = 0
        self._backend = backend
        self._checkpoint = checkpoint

    @property
    def scheduled_for(self) -> datetime | None:
        """Tick of the schedule that started this run, however late it started; None without a schedule."""
        return _tick_options.decode(self._options).tick if self._options is not None else None

    @property
    def backfilled(self) -> bool:
        """True if `backfill` started this run."""
        return self._options is not None and _tick_options.decode(self._options).backfilled

    @property
    def cancelled(self) -> bool:
        """True if cancellation of this job was requested. Async code is cancelled; code in a thread must
        check this."""
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
        if self._backend is not None:
            self._backend.interrupt()

    @overload
    async def map(
        self,
        calls: Iterable[BoundCall[R]],
        *,
        concurrency: int | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[R]: ...
    @overload
    async def map(
        self,
        calls: Iterable[BoundCall[R]],
        *,
        concurrency: int | None = None,
        return_exceptions: Literal[True],
    ) -> list[R | RunFailed]: ...
    async def map(
        self,
        calls: Iterable[BoundCall[Any]],
        *,
        concurrency: int | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Run calls as child jobs, at most `concurrency` of them at a time, and return their results.

        The first failure cancels the rest and raises RunFailed. With return_exceptions=True all calls run,
        and the list holds a RunFailed for each failed one. While the job waits, it occupies no slot of its
        worker. If the job is retried, calls that succeeded keep their results and only the remaining ones
        run again.
        """
        number, self._map_count = self._map_count, self._map_count + 1
        return await self._require_backend().run_children(
            number, list(calls), concurrency, return_exceptions
        )

    async def run(self, call: BoundCall[R]) -> R:
        """Run one call as a child job or flow and return its result, as `map` does."""
        [result] = await self.map([call])
        return result

    async def failures(self) -> list[Failure]:
        """Return the failed jobs of this run, the earliest failure first, at most 100. Used in a flow's
        on_failure task."""
        return await self._require_backend().failures()

    # Draining and lost workers

    @property
    def draining(self) -> bool:
        """True if the worker is about to stop. Long-running code should save its progress with `checkpoint`
        and raise `Requeue`."""
        return self._backend is not None and self._backend.draining

    @property
    def resumed_from(self) -> Any:
        """Last state that an earlier attempt at this job saved with `checkpoint`; None if there is none."""
        return None if self._checkpoint is None else msgspec.json.decode(self._checkpoint)

    async def checkpoint(self, state: Any) -> None:
        """Save the progress of this job. The next attempt, on any worker, reads it as `resumed_from`. Raise
        ClaimLost if this worker no longer holds the job."""
        text = codec.encode(state, f"the checkpoint of task {self.task!r}", codec.MAX_JSON_BYTES)
        await self._require_backend().checkpoint(text)
        self._checkpoint = text

    async def fence(self) -> int:
        """Return the id of a claim that holds only this job. Raise ClaimLost if this worker no longer holds
        it.

        Pass the id to `rota.assert_claim(job, claim)` in a transaction on your own connection.
        """
        return await self._require_backend().fence()

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Open a transaction in Rota's database that fails with ClaimLost if this worker no longer holds
        the job.

        Use it as `async with ctx.transaction() as connection`; the connection is psycopg's. The job cannot
        be taken from this worker until the transaction ends.
        """
        return self._require_backend().transaction()

    def complete(self, result: Any = None) -> None:
        """Inside `transaction()`: complete the job with this result when the transaction commits."""
        self._require_backend().complete(result)

    # Called by the worker

    @property
    def forced_outcome(self) -> Outcome | None:
        return None if self._backend is None else self._backend.forced_outcome

    async def end(self) -> None:
        if self._backend is not None:
            await self._backend.end()

    def end_sync(self) -> None:
        if self._backend is not None and self._backend.is_durable:
            self._backend.run_sync(self._backend.end())

    @property
    def sync(self) -> SyncContext:
        """The same operations for a plain function: `ctx.sync.map(…)`."""
        return SyncContext(self)

    def _require_backend(self) -> ContextBackend:
        if self._backend is None:
            raise RuntimeError(
                "this context belongs to no worker, so it cannot start or store anything; use the context "
                "of rota.testing in tests"
            )
        return self._backend


class SyncContext:
    """Blocking versions of a context's operations, for code in a thread."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def map(self, calls: Iterable[BoundCall[Any]], **options: Any) -> list[Any]:
        """Blocking version of `ctx.map(…)`."""
        return self._run(self._context.map(calls, **options))

    def run(self, call: BoundCall[R]) -> R:
        """Blocking version of `ctx.run(…)`."""
        return self._run(self._context.run(call))

    def checkpoint(self, state: Any) -> None:
        """Blocking version of `ctx.checkpoint(…)`."""
        self._run(self._context.checkpoint(state))

    def fence(self) -> int:
        """Blocking version of `ctx.fence()`."""
        return self._run(self._context.fence())

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """Blocking version of `ctx.transaction()`: `with ctx.sync.transaction() as connection`."""
        return self._context._require_backend().sync_transaction()

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Blocking version of `ctx.step(…)`; the function runs in this thread."""
        return self._run(self._context.step(name, fn, *args, **kwargs))

    def options(self, *, retry: Retry | None = None, timeout: Duration | None = None) -> SyncSteps:
        """Blocking version of `ctx.options(…)`."""
        return SyncSteps(self._context.options(retry=retry, timeout=timeout), self._run)

    def sleep(self, duration: Duration | None = None, /, **units: float) -> None:
        """Blocking version of `ctx.sleep(…)`."""
        self._run(self._context.sleep(duration, **units))

    def sleep_until(self, when: datetime) -> None:
        """Blocking version of `ctx.sleep_until(…)`."""
        self._run(self._context.sleep_until(when))

    def wait_signal(self, name: str, kind: Any = Any, /, **options: Any) -> Any:
        """Blocking version of `ctx.wait_signal(…)`."""
        return self._run(self._context.wait_signal(name, kind, **options))

    def restart(self, **input: Any) -> NoReturn:
        """Blocking version of `ctx.restart(…)`."""
        self._run(self._context.restart(**input))
        raise AssertionError("ctx.restart() must not return")

    def failures(self) -> list[Failure]:
        """Blocking version of `ctx.failures()`."""
        return self._run(self._context.failures())

    def _run(self, coroutine: Awaitable[R]) -> R:
        result: R = self._context._require_backend().run_sync(coroutine)
        return result


class SyncSteps:
    """Blocking version of `StepOptions`, for code in a thread."""

    def __init__(self, steps: StepOptions, run: Callable[[Any], Any]) -> None:
        self._steps = steps
        self._run = run

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Blocking version of `ctx.options(…).step(…)`; the function runs in this thread."""
        result: R = self._run(self._steps.step(name, fn, *args, **kwargs))
        return result
