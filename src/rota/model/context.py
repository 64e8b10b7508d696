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
from rota.model.durably import Durably, Keeper, Steps
from rota.model.outcome import Outcome
from rota.model.settings import Duration

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from rota.model.retry import Retry

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class CallOf(Protocol[R_co]):
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


class Port(Protocol):
    """How a context reaches the worker it runs in."""

    async def call(
        self, number: int, calls: Sequence[CallOf[Any]], limit: int | None, collect: bool
    ) -> list[Any]: ...

    async def failures(self) -> list[Failure]: ...

    @property
    def draining(self) -> bool: ...

    async def checkpoint(self, state: str) -> None: ...

    async def fence(self) -> int: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def blocking_transaction(self) -> AbstractContextManager[Any]: ...

    def complete(self, result: Any) -> None: ...

    @property
    def durable(self) -> Keeper: ...

    @property
    def is_durable(self) -> bool:
        """Whether its code has come to anything that is kept."""

    @property
    def fate(self) -> Outcome | None:
        """What the attempt comes to, whatever its code does: its job has left."""

    async def end(self) -> None:
        """The code has returned."""

    def progress(self, done: float, total: float | None, note: str | None) -> None: ...

    def say(self, message: str) -> None: ...

    def block(self, waiting: Any) -> Any:
        """Wait for a coroutine, in a thread."""

    def interrupt(self) -> None:
        """Stop waiting: somebody wants the job to stop."""


class _Tick(msgspec.Struct):
    """What a job's options say of the tick it was started for."""

    tick: datetime | None = None
    backfilled: bool = False


_tick = msgspec.json.Decoder(_Tick)


class Context(Durably):
    """One attempt at one job."""

    __slots__ = (
        "_cancelled",
        "_checkpoint",
        "_made",
        "_options",
        "_port",
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
        port: Port | None = None,
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
        self._made = 0
        self._port = port
        self._checkpoint = checkpoint

    @property
    def scheduled_for(self) -> datetime | None:
        """The tick of a schedule that this run was started for, however late; None: it was not."""
        return _tick.decode(self._options).tick if self._options is not None else None

    @property
    def backfilled(self) -> bool:
        """Whether it was started afterwards, by `backfill`."""
        return self._options is not None and _tick.decode(self._options).backfilled

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants this job to stop. Async code is cancelled; code in a thread asks here."""
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
        if self._port is not None:
            self._port.interrupt()

    @overload
    async def map(
        self,
        calls: Iterable[CallOf[R]],
        *,
        limit: int | None = None,
        failures: Literal["raise"] = "raise",
    ) -> list[R]: ...
    @overload
    async def map(
        self, calls: Iterable[CallOf[R]], *, limit: int | None = None, failures: Literal["collect"]
    ) -> list[R | RunFailed]: ...
    async def map(
        self,
        calls: Iterable[CallOf[Any]],
        *,
        limit: int | None = None,
        failures: Literal["raise", "collect"] = "raise",
    ) -> list[Any]:
        """Run calls as jobs of their own, at most `limit` of them at a time, and wait for their results.

        The first that fails cancels the rest and raises RunFailed; with failures="collect" all run, and a
        RunFailed stands where a result would. While this waits the job takes no place in its worker. If
        the job is tried again, calls that succeeded keep their results and only the others run again.
        """
        number, self._made = self._made, self._made + 1
        return await self._reach().call(number, list(calls), limit, failures == "collect")

    async def run(self, call: CallOf[R]) -> R:
        """Run one call as a job, or a flow, of its own and wait for its result; as `map` does."""
        [result] = await self.map([call])
        return result

    async def failures(self) -> list[Failure]:
        """The jobs of this run that failed, the first first: for a flow's on_failure."""
        return await self._reach().failures()

    # A worker that leaves, or dies

    @property
    def draining(self) -> bool:
        """Whether the worker is about to leave. Code that takes long had better come to a point from which
        it can go on elsewhere, keep it with `checkpoint`, and raise `HandBack`."""
        return self._port is not None and self._port.draining

    @property
    def resumed_from(self) -> Any:
        """What an earlier attempt at this job kept last with `checkpoint`; None: nothing."""
        return None if self._checkpoint is None else msgspec.json.decode(self._checkpoint)

    async def checkpoint(self, state: Any) -> None:
        """Keep how far this job has come: the next attempt, here or elsewhere, has it as `resumed_from`.
        Raises ClaimLost if the job is no longer this worker's."""
        text = codec.encode(state, f"the checkpoint of task {self.task!r}", codec.LARGEST)
        await self._reach().checkpoint(text)
        self._checkpoint = text

    async def fence(self) -> int:
        """The number under which this worker holds this job, and nothing else: for `rota.assert_claim(job,
        claim)` in a transaction on a connection of your own. Raises ClaimLost."""
        return await self._reach().fence()

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A transaction that is refused, with ClaimLost, once the job is no longer this worker's: `async
        with ctx.transaction() as connection`, a psycopg connection to Rota's own database. Until it ends
        nobody takes the job away."""
        return self._reach().transaction()

    def complete(self, result: Any = None) -> None:
        """Inside `transaction()`: the job has succeeded with this result if that commits."""
        self._reach().complete(result)

    # For the worker

    @property
    def fate(self) -> Outcome | None:
        return None if self._port is None else self._port.fate

    async def end(self) -> None:
        if self._port is not None:
            await self._port.end()

    def end_blocking(self) -> None:
        if self._port is not None and self._port.is_durable:
            self._port.block(self._port.end())

    @property
    def blocking(self) -> BlockingContext:
        """The same for a plain function: `ctx.blocking.map(…)`."""
        return BlockingContext(self)

    def _reach(self) -> Port:
        if self._port is None:
            raise RuntimeError(
                "this context belongs to no worker, so nothing can be started or kept; rota.testing has "
                "one that needs none"
            )
        return self._port


class BlockingContext:
    """What a context does that takes time, for code in a thread."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def map(self, calls: Iterable[CallOf[Any]], **how: Any) -> list[Any]:
        """As `ctx.map(…)`."""
        results: list[Any] = self._wait(self._context.map(calls, **how))
        return results

    def run(self, call: CallOf[R]) -> R:
        """As `ctx.run(…)`."""
        result: R = self._wait(self._context.run(call))
        return result

    def checkpoint(self, state: Any) -> None:
        """As `ctx.checkpoint(…)`."""
        self._wait(self._context.checkpoint(state))

    def fence(self) -> int:
        """As `ctx.fence()`."""
        claim: int = self._wait(self._context.fence())
        return claim

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """As `ctx.transaction()`: `with ctx.blocking.transaction() as connection`."""
        return self._context._reach().blocking_transaction()

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `ctx.step(…)`; the function runs in this thread."""
        result: R = self._wait(self._context.step(name, fn, *args, **kwargs))
        return result

    def using(
        self, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> BlockingSteps:
        """As `ctx.using(…)`."""
        return BlockingSteps(self._context.using(retry=retry, timeout=timeout), self._wait)

    def sleep(self, duration: Duration | None = None, /, **units: float) -> None:
        """As `ctx.sleep(…)`."""
        self._wait(self._context.sleep(duration, **units))

    def sleep_until(self, when: datetime) -> None:
        """As `ctx.sleep_until(…)`."""
        self._wait(self._context.sleep_until(when))

    def wait(self, name: str, kind: Any = Any, /, **how: Any) -> Any:
        """As `ctx.wait(…)`."""
        return self._wait(self._context.wait(name, kind, **how))

    def restart(self, **input: Any) -> NoReturn:
        """As `ctx.restart(…)`."""
        self._wait(self._context.restart(**input))
        raise AssertionError("the job has begun anew")

    def failures(self) -> list[Failure]:
        """As `ctx.failures()`."""
        found: list[Failure] = self._wait(self._context.failures())
        return found

    def _wait(self, waiting: Any) -> Any:
        return self._context._reach().block(waiting)


class BlockingSteps:
    """How steps are done, for code in a thread."""

    def __init__(self, steps: Steps, wait: Callable[[Any], Any]) -> None:
        self._steps = steps
        self._wait = wait

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `ctx.blocking.step(…)`."""
        result: R = self._wait(self._steps.step(name, fn, *args, **kwargs))
        return result
