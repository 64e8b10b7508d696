"""A loop that runs on one instance: how it is declared, and what its code may know and do."""

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
"""Seconds that a service that fails waits at most, unless it is due less often anyway. One that ran for
longer before it failed begins to count anew."""

RESTART_SECONDS = 1.0
"""Seconds after which one that should go on for ever and has ended is begun again."""


@dataclass(frozen=True)
class ServiceDefinition:
    name: str
    fn: Callable[..., Any]
    every: float | None
    """Seconds from start to start; None: it goes on for ever."""
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
        """Seconds from the end of an iteration that failed to the next, after so many in a row."""
        return min(2.0 ** min(failures - 1, 10), MAX_BACKOFF_SECONDS) if failures else 0.0

    def count_failures(self, failures: int, outcome: str, duration: float) -> int:
        """Failures in a row, after an iteration that came to this."""
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
        """Seconds from the end of an iteration to the next on this instance."""
        regular_pause = RESTART_SECONDS if self.every is None else self.every - duration
        return max(regular_pause, self.backoff_seconds(failures), 0.0)


class ServiceLeadership(Protocol):
    """What a service's code relies on: that it is the one that runs."""

    @property
    def number(self) -> int: ...

    @property
    def held(self) -> bool: ...

    async def assert_held(self, connection: Any) -> None: ...

    def run_assertion(self, connection: Any) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]: ...

    def sync_transaction(self) -> AbstractContextManager[Connection[Any]]: ...


class ServiceContext:
    """What the code of a service may know and do: `async def filings(ctx: ServiceContext)`."""

    def __init__(self, name: str, iteration: int, leadership: ServiceLeadership) -> None:
        self.name = name
        self.iteration = iteration
        """Counted over all instances."""
        self._leadership = leadership
        self._stopping = threading.Event()

    @property
    def term(self) -> int:
        """Larger than that of every instance that ran it before: a fencing token."""
        return self._leadership.number

    @property
    def held(self) -> bool:
        """Whether this is still the instance that runs it; true from any thread, after any pause."""
        return self._leadership.held

    @property
    def stopping(self) -> bool:
        """Whether this instance is about to leave, to pass the service on, or has lost it: come to an end
        soon."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Have its code told; from any thread."""
        self._stopping.set()

    async def assert_held(self, connection: Any) -> None:
        """Refuse the rest of the transaction on this connection of yours, with LeadershipLost, if another
        instance runs the service by now; else none does until the transaction ends."""
        await self._leadership.assert_held(connection)

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A transaction in Rota's database that begins with that assertion."""
        return self._leadership.transaction()

    @property
    def sync(self) -> SyncServiceContext:
        """For a service that is a plain function."""
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
        """Sleep, but no longer than until it is to stop. Answers whether it may go on: `while
        ctx.sync.sleep(5): …`"""
        return not self._stopping.wait(to_seconds(duration))
