"""Durable operations of a context: steps, sleeps, waits for signals, stored values and progress.

Each operation has a name and is recorded in the journal when the code reaches it. When the job runs again
(after a crash, a sleep, a deployment or a failed attempt), the code starts from its first line, and
recorded operations return their stored results. Between operations the code must therefore be
deterministic. Anything that depends on time, randomness or external state belongs in a step, or comes from
`ctx.now()`, `ctx.random()` or `ctx.uuid()`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar, overload
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
"""Maximum length of the name of a step, signal or change."""


class DurableBackend(Protocol):
    """Journal of a job, as used by its context."""

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
    """Durable operations of one attempt; base class of `Context`."""

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
        """Run a function once and store its result: `await ctx.step("welcome", send_welcome, user)`.

        When the job runs again, the stored result is returned. If the function fails, StepFailed is raised.
        A function that is not async runs in a thread. Without a function, return a decorator: each call of
        the decorated function is a step. Inside a step, `ctx.transaction()` commits together with the step.
        """
        return StepOptions(self._require_backend().durable).step(name, fn, *args, **kwargs)

    def options(
        self, *, retry: Retry | None = None, timeout: Duration | None = None
    ) -> StepOptions:
        """Return step options with a retry policy or a timeout.

            await ctx.options(retry=Retry(max_attempts=5), timeout=10).step("charge", charge, order)

        During a long delay between two tries the job does not occupy a slot of its worker.
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
        """Sleep by the database's clock; the job leaves its worker meanwhile.

        Pass seconds, a timedelta or units: `ctx.sleep(90)`, `ctx.sleep(timedelta(days=7))`,
        `ctx.sleep(days=7)`. The sleep survives restarts.
        """
        total = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
        if duration is not None:
            total += duration.total_seconds() if isinstance(duration, timedelta) else duration
        await self._require_backend().durable.sleep(_check_seconds(total, "ctx.sleep"), None)

    async def sleep_until(self, when: datetime) -> None:
        """Sleep until a time, which must have a time zone."""
        if when.tzinfo is None:
            raise ArgumentError(
                f"ctx.sleep_until({when.isoformat()}) has no time zone; pass one that has, such as "
                "datetime.now(UTC)"
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
        """Wait for a signal with this name to the run, and return its payload as `kind`.

        A signal that was sent earlier is returned at once. After `timeout`, return the default or raise
        SignalTimeout. That outcome is stored as well.
        """
        timeout_seconds = (
            None
            if timeout is None
            else _check_seconds(to_seconds(timeout), "ctx.wait_signal(timeout=…)")
        )
        return await self._require_backend().durable.wait_signal(
            check_entry_name("signal", name), kind, timeout_seconds, default
        )

    async def restart(self, **input: Any) -> NoReturn:
        """Restart the job with these arguments, as the same run and with an empty journal.

        Use it for endless work, which would otherwise accumulate steps without limit.
        """
        await self._require_backend().durable.restart(input)

    # Values that stay the same when the job runs again

    def now(self) -> datetime:
        """Return the time of the first execution of this call."""
        return self._require_backend().durable.now()

    def random(self) -> float:
        """Return a random number from 0 up to 1, the same on every replay."""
        number: float = self._require_backend().durable.value("random", random.random)
        return number

    def uuid(self) -> UUID:
        """Return a random UUID for use in external systems. It is stored before the next step begins."""
        return UUID(self._require_backend().durable.value("uuid", lambda: str(uuid4())))

    def version(self, change: str) -> bool:
        """True if a change of the code applies to this run: `if ctx.version("fees"): new() else: old()`.

        It does not apply to runs that had passed this point before the change was deployed.
        """
        return self._require_backend().durable.version(check_entry_name("change", change))

    # Reports

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report the progress of the job, shown by `rota show`. Written with a short delay; only the latest
        is kept."""
        self._require_backend().progress(float(done), None if total is None else float(total), note)

    def log(self, message: str) -> None:
        """Store a message with the job, shown by `rota show`. Written with a short delay."""
        self._require_backend().log(str(message))


class StepOptions:
    """Retry policy and timeout of steps."""

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
        """Run a step with these options, as `ctx.step(…)` does."""
        check_entry_name("step", name)
        if fn is None:
            return StepDecorator(self, name)
        if not callable(fn):
            raise ArgumentError(
                f"step {name!r} takes a function and its arguments, not {type(fn).__name__}: "
                "write ctx.step(name, fn, …), not ctx.step(name, fn(…))"
            )
        return self._backend.step(name, fn, args, kwargs, self._retry, self._timeout)


class StepDecorator:
    """Decorator that turns each call of a function into a step."""

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
    """Return the name of a step, a signal or a change; raise ArgumentError if it is empty or too long."""
    given: object = name  # type hints are not enforced at run time
    if not isinstance(given, str) or not 0 < len(name) <= MAX_NAME_CHARS or "\x00" in name:
        raise ArgumentError(
            f"the name of a {kind} has 1 to {MAX_NAME_CHARS} letters, not {name!r:.60}"
        )
    return name


def _check_seconds(amount: float, subject: str) -> float:
    if not 0 <= amount < 100 * 366 * 86400:
        raise ArgumentError(f"{subject} takes 0 seconds to a hundred years, not {amount:g} seconds")
    return float(amount)
