"""Services: loops that one instance runs. Their definition, and the context of their code."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from rota.errors import ArgumentError, DefinitionError
from rota.model.settings import Duration, to_seconds

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

MAX_BACKOFF_SECONDS = 60.0
"""Longest pause after failures, unless the service runs less often anyway. After an iteration of at least
this duration, earlier failures no longer count."""

RESTART_SECONDS = 1.0
"""Pause before a service declared with forever=True is called again after it has returned."""


@dataclass(frozen=True)
class ServiceDefinition:
    name: str
    fn: Callable[..., Any]
    every: float | None
    """Seconds between the starts of two iterations; None for a service that runs forever."""
    lease: float

    @cached_property
    def takes_context(self) -> bool:
        parameters = inspect.signature(self.fn).parameters.values()
        required = [
            each
            for each in parameters
            if each.default is each.empty
            and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        if len(required) > 1 or any(each.kind is each.KEYWORD_ONLY for each in required):
            raise DefinitionError(
                f"service {self.name!r} takes {', '.join(each.name for each in required)}: a service is "
                "given its context (ctx: ServiceContext) and nothing else"
            )
        return bool(required)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.fn)

    def backoff_seconds(self, failures: int) -> float:
        """Return the minimum pause in seconds after this number of consecutive failures."""
        return min(2.0 ** min(failures - 1, 10), MAX_BACKOFF_SECONDS) if failures else 0.0

    def count_failures(self, failures: int, outcome: str, duration: float) -> int:
        """Return the number of consecutive failures after an iteration with this outcome."""
        if duration >= MAX_BACKOFF_SECONDS:
            failures = 0
        match outcome:
            case "succeeded":
                return 0
            case "failed":
                return failures + 1
            case _:
                return failures

    def pause_seconds(self, failures: int, duration: float) -> float:
        """Return the seconds from the end of an iteration to the next one on this instance."""
        regular_pause = RESTART_SECONDS if self.every is None else self.every - duration
        return max(regular_pause, self.backoff_seconds(failures), 0.0)


class ServiceLeadership(Protocol):
    """Leadership under which a service runs."""

    @property
    def number(self) -> int: ...

    @property
    def held(self) -> bool: ...

    async def assert_held(self, connection: Any) -> None: ...

    def run_assertion(self, connection: Any) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]: ...

    def sync_transaction(self) -> AbstractContextManager[Connection[Any]]: ...


class ServiceContext:
    """Context of a service: `async def filings(ctx: ServiceContext)`."""

    def __init__(self, name: str, iteration: int, leadership: ServiceLeadership) -> None:
        self.name = name
        self.iteration = iteration
        """Number of the iteration, counted over all instances."""
        self._leadership = leadership
        self._stopping = threading.Event()

    @property
    def term(self) -> int:
        """Fencing token: larger than the term of every instance that ran the service before."""
        return self._leadership.number

    @property
    def held(self) -> bool:
        """True if this instance still runs the service. Thread-safe, and correct after any pause of the
        process."""
        return self._leadership.held

    @property
    def stopping(self) -> bool:
        """True if the code should return soon: this instance stops, hands the service
        over or has lost it."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Set `stopping`. Thread-safe."""
        self._stopping.set()

    async def assert_held(self, connection: Any) -> None:
        """Assert in the transaction on your connection that this instance runs the service.

        Raise LeadershipLost, which fails the transaction, if another instance runs it. Otherwise no other
        instance can until the transaction ends.
        """
        await self._leadership.assert_held(connection)

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Open a transaction in Rota's database that begins with this assertion."""
        return self._leadership.transaction()

    @property
    def sync(self) -> SyncServiceContext:
        """The same operations for a service that is a plain function."""
        return SyncServiceContext(self._leadership, self._stopping)


class SyncServiceContext:
    def __init__(self, leadership: ServiceLeadership, stopping: threading.Event) -> None:
        self._leadership = leadership
        self._stopping = stopping

    def assert_held(self, connection: Any) -> None:
        answer = self._leadership.run_assertion(connection)
        if isinstance(answer, Awaitable):
            answer.close()  # type: ignore[attr-defined]
            raise ArgumentError(
                "this connection is to be awaited: await ctx.assert_held(connection), in a service that is "
                "async"
            )

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        return self._leadership.sync_transaction()

    def sleep(self, duration: Duration) -> bool:
        """Sleep, at most until the service is to stop. Return True if it may continue: `while
        ctx.sync.sleep(5): …`"""
        return not self._stopping.wait(to_seconds(duration))
