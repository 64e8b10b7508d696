"""What a context does that outlives its worker: steps, sleeps, waits, values, progress.

Each is asked for by name and kept as the code comes to it. When the job runs again (after a crash, a
sleep, a redeploy, a failed attempt) the code runs from its first line, and is given what it had come to.
So between its steps code must come to the same things again: what depends on the time, on chance or on the
world belongs into a step, or is asked for here.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)
from uuid import UUID, uuid4

from rota.errors import ArgumentError
from rota.model.settings import Duration, to_seconds

if TYPE_CHECKING:
    from rota.model.context import ContextBackend
    from rota.model.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")

NO_DEFAULT: Any = object()

MAX_NAME_CHARS = 200
"""Letters in the name of a step or a signal."""


class DurableBackend(Protocol):
    """Keeps what a job's code comes to."""

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        retry: Retry | None,
        timeout: float | None,
    ) -> Any: ...

    async def sleep(self, seconds: float | None, until: datetime | None) -> None: ...

    async def wait_signal(
        self, name: str, kind: Any, timeout: float | None, default: Any
    ) -> Any: ...

    async def restart(self, args: Mapping[str, Any]) -> NoReturn: ...

    def value(self, name: str, factory: Callable[[], Any]) -> Any: ...

    def now(self) -> datetime: ...

    def version(self, change: str) -> bool: ...


class DurableMethods:
    """One attempt's durable code; part of `Context`."""

    __slots__ = ()

    def _require_backend(self) -> ContextBackend:
        raise NotImplementedError

    # Steps

    @overload
    def step(
        self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...
    @overload
    def step(
        self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...
    @overload
    def step(self, name: str, /) -> StepDecorator: ...
    def step(self, name: str, fn: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function once and keep what it returns: `await ctx.step("welcome", send_welcome, user)`.

        When the job runs again it is given what was kept. A function that fails raises StepFailed; one that
        is not async runs in a thread. Without a function, a decorator: each call of what it decorates is a
        step. Inside, `ctx.transaction()` is committed together with the step.
        """
        return StepOptions(self._require_backend().durable).step(name, fn, *args, **kwargs)

    def options(
        self, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> StepOptions:
        """Give a step a retry policy or a timeout.

            await ctx.options(retry=Retry(max_attempts=5), timeout=10).step("charge", charge, order)

        Between tries that are far apart the job does not occupy a slot of its worker.
        """
        return StepOptions(
            self._require_backend().durable, retry, None if timeout is None else to_seconds(timeout)
        )

    # Waiting

    async def sleep(
        self,
        duration: Duration | None = None,
        /,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """Go on after so long, `ctx.sleep(90)`, `ctx.sleep(timedelta(days=7))` or `ctx.sleep(days=7)`, by
        the database's clock. The job leaves its worker meanwhile and survives every restart."""
        total = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
        if duration is not None:
            total += duration.total_seconds() if isinstance(duration, timedelta) else duration
        await self._require_backend().durable.sleep(_check_seconds(total, "ctx.sleep"), None)

    async def sleep_until(self, when: datetime) -> None:
        """Go on at a time, which says its zone."""
        if when.tzinfo is None:
            raise ArgumentError(
                f"ctx.sleep_until({when.isoformat()}) does not say in which zone; pass a time with one, as "
                "datetime.now(UTC) is"
            )
        await self._require_backend().durable.sleep(None, when)

    @overload
    async def wait_signal(
        self, name: str, kind: type[T], /, *, timeout: Duration | None = None
    ) -> T: ...
    @overload
    async def wait_signal(
        self, name: str, kind: type[T], /, *, timeout: Duration | None = None, default: D
    ) -> T | D: ...
    @overload
    async def wait_signal(
        self, name: str, kind: Any = Any, /, *, timeout: Duration | None = None, default: Any = ...
    ) -> Any: ...
    async def wait_signal(
        self,
        name: str,
        kind: Any = Any,
        /,
        *,
        timeout: Duration | None = None,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Wait until somebody sends this run a signal of that name, and read what it says as `kind`. One
        that was sent before is there. If none comes in time the default is given, or SignalTimeout is
        raised; that is kept, too."""
        timeout_seconds = (
            None
            if timeout is None
            else _check_seconds(to_seconds(timeout), "ctx.wait_signal(timeout=…)")
        )
        return await self._require_backend().durable.wait_signal(
            check_entry_name("signal", name), kind, timeout_seconds, default
        )

    async def restart(self, **input: Any) -> NoReturn:
        """Begin anew with these arguments, as the same run, and with nothing of what it has come to: for
        work without an end, which would else come to ever more steps."""
        await self._require_backend().durable.restart(input)

    # Values that are the same when the job runs again

    def now(self) -> datetime:
        """The time it is, or was when the code first asked."""
        return self._require_backend().durable.now()

    def random(self) -> float:
        """A number from 0 up to 1."""
        number: float = self._require_backend().durable.value("random", random.random)
        return number

    def uuid(self) -> UUID:
        """An id for somebody else to know this by; kept before the next step begins."""
        return UUID(self._require_backend().durable.value("uuid", lambda: str(uuid4())))

    def version(self, change: str) -> bool:
        """Whether a change of this code goes for this run: `if ctx.version("fees"): new() else: old()`. It
        does not for runs that had come further than this before the change was deployed."""
        return self._require_backend().durable.version(check_entry_name("change", change))

    # What others see meanwhile

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far the job is: shown by `rota show`. Written a little later, the last one only."""
        self._require_backend().progress(float(done), None if total is None else float(total), note)

    def log(self, message: str) -> None:
        """Say something that is kept with the job: shown by `rota show`. Written a little later."""
        self._require_backend().log(str(message))


class StepOptions:
    """How steps are done: how often they are tried, and how long one may take."""

    __slots__ = ("_backend", "_retry", "_timeout")

    def __init__(
        self, backend: DurableBackend, retry: Retry | None = None, timeout: float | None = None
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ArgumentError(f"timeout must be above 0 seconds, not {timeout:g}")
        self._backend = backend
        self._retry = retry
        self._timeout = timeout

    @overload
    def step(
        self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...
    @overload
    def step(
        self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[R]: ...
    @overload
    def step(self, name: str, /) -> StepDecorator: ...
    def step(self, name: str, fn: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        """As `ctx.step(…)`."""
        check_entry_name("step", name)
        if fn is None:
            return StepDecorator(self, name)
        if not callable(fn):
            raise ArgumentError(
                f"step {name!r} takes a function and its arguments, not {type(fn).__name__}: "
                "ctx.step(name, fn, …), and not what fn(…) answered"
            )
        return self._backend.step(name, fn, args, kwargs, self._retry, self._timeout)


class StepDecorator:
    """Makes a step of a function: each call of it is one."""

    def __init__(self, steps: StepOptions, name: str) -> None:
        self._steps = steps
        self._name = name

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Callable[P, Awaitable[R]]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Callable[P, Awaitable[R]]: ...
    def __call__(self, fn: Any, /) -> Any:
        @wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._steps.step(self._name, fn, *args, **kwargs)

        return call


def check_entry_name(kind: str, name: str) -> str:
    """The name of a step, a signal or a change: any text, but not any amount of it."""
    given: object = name  # what the hint promises, a program need not keep
    if not isinstance(given, str) or not 0 < len(name) <= MAX_NAME_CHARS or "\x00" in name:
        raise ArgumentError(
            f"the name of a {kind} has 1 to {MAX_NAME_CHARS} letters, not {name!r:.60}"
        )
    return name


def _check_seconds(amount: float, subject: str) -> float:
    if not 0 <= amount < 100 * 366 * 86400:
        raise ArgumentError(f"{subject} takes 0 seconds to a hundred years, not {amount:g} seconds")
    return float(amount)
