"""What a task may know and do about the job it runs: `async def resize(ctx: Context, …)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

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
    """A task or a flow with its arguments, made by its `call(…)`."""

    @property
    def name(self) -> str: ...

    def read(self, result: Any, /) -> R_co: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A job of this run that failed: its task's name in the flow, and its error."""

    job: int
    task: str
    kind: str
    reason: str


class ContextBackend(Protocol):
    """How a context reaches the worker it runs in."""

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
        """Whether its code has come to anything that is kept."""

    @property
    def forced_outcome(self) -> Outcome | None:
        """What the attempt comes to, whatever its code does: its job has left."""

    async def end(self) -> None:
        """The code has returned."""

    def progress(self, done: float, total: float | None, note: str | None) -> None: ...

    def log(self, message: str) -> None: ...

    def run_sync(self, coroutine: Any) -> Any:
        """Wait for a coroutine, in a thread."""

    def interrupt(self) -> None:
        """Stop waiting: somebody wants the job to stop."""


class _TickOptions(msgspec.Struct):
    """What a job's options say of the tick it was started for."""

    tick: datetime | None = None
    backfilled: bool = False


_tick_options = msgspec.json.Decoder(_TickOptions)


class Context(DurableMethods):
    """One attempt at one job."""

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
        """The tick of a schedule that this run was started for, however late; None: it was not."""
        return _tick_options.decode(self._options).tick if self._options is not None else None

    @property
    def backfilled(self) -> bool:
        """Whether it was started afterwards, by `backfill`."""
        return self._options is not None and _tick_options.decode(self._options).backfilled

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants this job to stop. Async code is cancelled; code in a thread asks here."""
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
        """Run calls as jobs of their own, at most `limit` of them at a time, and wait for their results.

        The first that fails cancels the rest and raises RunFailed; with return_exceptions=True all run,
        and a RunFailed stands where a result would. While it waits the job takes no slot of its worker. If
        the job is tried again, calls that succeeded keep their results and only the others run again.
        """
        number, self._map_count = self._map_count, self._map_count + 1
        return await self._require_backend().run_children(
            number, list(calls), concurrency, return_exceptions
        )

    async def run(self, call: BoundCall[R]) -> R:
        """Run one call as a job, or a flow, of its own and wait for its result; as `map` does."""
        [result] = await self.map([call])
        return result

    async def failures(self) -> list[Failure]:
        """The jobs of this run that failed, the first first: for a flow's on_failure."""
        return await self._require_backend().failures()

    # A worker that leaves, or dies

    @property
    def draining(self) -> bool:
        """Whether the worker is about to leave. Code that takes long had better come to a point from which
        it can go on elsewhere, keep it with `checkpoint`, and raise `Requeue`."""
        return self._backend is not None and self._backend.draining

    @property
    def resumed_from(self) -> Any:
        """What an earlier attempt at this job kept last with `checkpoint`; None: nothing."""
        return None if self._checkpoint is None else msgspec.json.decode(self._checkpoint)

    async def checkpoint(self, state: Any) -> None:
        """Keep how far this job has come: the next attempt, here or elsewhere, has it as `resumed_from`.
        Raises ClaimLost if the job is no longer this worker's."""
        text = codec.encode(state, f"the checkpoint of task {self.task!r}", codec.MAX_JSON_BYTES)
        await self._require_backend().checkpoint(text)
        self._checkpoint = text

    async def fence(self) -> int:
        """The number under which this worker holds this job, and nothing else: for `rota.assert_claim(job,
        claim)` in a transaction on a connection of your own. Raises ClaimLost."""
        return await self._require_backend().fence()

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A transaction that is refused, with ClaimLost, once the job is no longer this worker's: `async
        with ctx.transaction() as connection`, a psycopg connection to Rota's own database. Until it ends
        nobody takes the job away."""
        return self._require_backend().transaction()

    def complete(self, result: Any = None) -> None:
        """Inside `transaction()`: the job has succeeded with this result if that commits."""
        self._require_backend().complete(result)

    # For the worker

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
        """The same for a plain function: `ctx.sync.map(…)`."""
        return SyncContext(self)

    def _require_backend(self) -> ContextBackend:
        if self._backend is None:
            raise RuntimeError(
                "this context belongs to no worker, so nothing can be started or kept; rota.testing has "
                "one that needs none"
            )
        return self._backend


class SyncContext:
    """What a context does that takes time, for code in a thread."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def map(self, calls: Iterable[BoundCall[Any]], **options: Any) -> list[Any]:
        """As `ctx.map(…)`."""
        results: list[Any] = self._run(self._context.map(calls, **options))
        return results

    def run(self, call: BoundCall[R]) -> R:
        """As `ctx.run(…)`."""
        result: R = self._run(self._context.run(call))
        return result

    def checkpoint(self, state: Any) -> None:
        """As `ctx.checkpoint(…)`."""
        self._run(self._context.checkpoint(state))

    def fence(self) -> int:
        """As `ctx.fence()`."""
        claim: int = self._run(self._context.fence())
        return claim

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """As `ctx.transaction()`: `with ctx.sync.transaction() as connection`."""
        return self._context._require_backend().sync_transaction()

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `ctx.step(…)`; the function runs in this thread."""
        result: R = self._run(self._context.step(name, fn, *args, **kwargs))
        return result

    def options(self, *, retry: Retry | None = None, timeout: Duration | None = None) -> SyncSteps:
        """As `ctx.options(…)`."""
        return SyncSteps(self._context.options(retry=retry, timeout=timeout), self._run)

    def sleep(self, duration: Duration | None = None, /, **units: float) -> None:
        """As `ctx.sleep(…)`."""
        self._run(self._context.sleep(duration, **units))

    def sleep_until(self, when: datetime) -> None:
        """As `ctx.sleep_until(…)`."""
        self._run(self._context.sleep_until(when))

    def wait_signal(self, name: str, kind: Any = Any, /, **options: Any) -> Any:
        """As `ctx.wait_signal(…)`."""
        return self._run(self._context.wait_signal(name, kind, **options))

    def restart(self, **input: Any) -> NoReturn:
        """As `ctx.restart(…)`."""
        self._run(self._context.restart(**input))
        raise AssertionError("the job has begun anew")

    def failures(self) -> list[Failure]:
        """As `ctx.failures()`."""
        found: list[Failure] = self._run(self._context.failures())
        return found

    def _run(self, coroutine: Any) -> Any:
        return self._context._require_backend().run_sync(coroutine)


class SyncSteps:
    """How steps are done, for code in a thread."""

    def __init__(self, steps: StepOptions, run: Callable[[Any], Any]) -> None:
        self._steps = steps
        self._run = run

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `ctx.sync.step(…)`."""
        result: R = self._run(self._steps.step(name, fn, *args, **kwargs))
        return result
