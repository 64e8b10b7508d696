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
from rota.model.settings import Duration, seconds

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

LONGEST_BACK_OFF = 60.0
"""Seconds that a service that fails waits at most, unless it is due less often anyway. One that ran for
longer before it failed begins to count anew."""

AGAIN = 1.0
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
        needed = [
            each
            for each in parameters
            if each.default is each.empty
            and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        if len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
            raise DefinitionError(
                f"service {self.name!r} takes {', '.join(each.name for each in needed)}: a service is "
                "given its context (ctx: ServiceContext) and nothing else"
            )
        return bool(needed)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.fn)

    def back_off(self, failures: int) -> float:
        """Seconds from the end of an iteration that failed to the next, after so many in a row."""
        return min(2.0 ** min(failures - 1, 10), LONGEST_BACK_OFF) if failures else 0.0

    def count(self, failures: int, outcome: str, lasted: float) -> int:
        """Failures in a row, after an iteration that came to this."""
        if lasted >= LONGEST_BACK_OFF:
            failures = 0
        match outcome:
            case "succeeded":
                return 0
            case "failed":
                return failures + 1
            case _:
                return failures

    def rest(self, failures: int, lasted: float) -> float:
        """Seconds from the end of an iteration to the next on this instance."""
        usual = AGAIN if self.every is None else self.every - lasted
        return max(usual, self.back_off(failures), 0.0)


class Held(Protocol):
    """What a service's code relies on: that it is the one that runs."""

    @property
    def number(self) -> int: ...

    @property
    def held(self) -> bool: ...

    async def assert_held(self, connection: Any) -> None: ...

    def assertion(self, connection: Any) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]: ...

    def blocking_transaction(self) -> AbstractContextManager[Connection[Any]]: ...


class ServiceContext:
    """What the code of a service may know and do: `async def filings(ctx: ServiceContext)`."""

    def __init__(self, name: str, iteration: int, held: Held) -> None:
        self.name = name
        self.iteration = iteration
        """Counted over all instances."""
        self._held = held
        self._stopping = threading.Event()

    @property
    def term(self) -> int:
        """Larger than that of every instance that ran it before: a fencing token."""
        return self._held.number

    @property
    def held(self) -> bool:
        """Whether this is still the instance that runs it; true from any thread, after any pause."""
        return self._held.held

    @property
    def stopping(self) -> bool:
        """Whether this instance is about to leave, to pass the service on, or has lost it: come to an end
        soon."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Have its code told; from any thread."""
        self._stopping.set()

    async def assert_held(self, connection: Any) -> None:
        """Refuse the rest of the transaction on this connection of yours, with TermLost, if another
        instance runs the service by now; else none does until the transaction ends."""
        await self._held.assert_held(connection)

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A transaction in Rota's database that begins with that assertion."""
        return self._held.transaction()

    @property
    def blocking(self) -> BlockingServiceContext:
        """For a service that is a plain function."""
        return BlockingServiceContext(self._held, self._stopping)


class BlockingServiceContext:
    def __init__(self, held: Held, stopping: threading.Event) -> None:
        self._held = held
        self._stopping = stopping

    def assert_held(self, connection: Any) -> None:
        answer = self._held.assertion(connection)
        if isinstance(answer, Awaitable):
            answer.close()  # type: ignore[attr-defined]
            raise ArgumentError(
                "this connection is to be awaited: await ctx.assert_held(connection), in a service that is "
                "async"
            )

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        return self._held.blocking_transaction()

    def sleep(self, duration: Duration) -> bool:
        """Sleep, but no longer than until it is to stop. Answers whether it may go on: `while
        ctx.blocking.sleep(5): …`"""
        return not self._stopping.wait(seconds(duration))
