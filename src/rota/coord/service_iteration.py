"""Call of a service's function, in the event loop or in a thread, and the context it receives.

A coroutine that does not end when it is asked to stop is cancelled. A thread cannot be stopped, only
asked; the caller waits for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from rota.coord.candidate import Term
from rota.model.service import ServiceContext, ServiceDefinition
from rota.store.raw_connections import RawConnections

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


class ServiceIteration:
    """Call of the function, begun at once. `task` returns the exception it raised, and never raises."""

    def __init__(self, definition: ServiceDefinition, context: ServiceContext) -> None:
        self.context = context
        self.was_cancelled = False
        self._runs_in_thread = False
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.task = asyncio.create_task(
            self._run(definition), name=f"rota service {definition.name} {context.iteration}"
        )

    @property
    def has_ended(self) -> bool:
        return self.task.done()

    @property
    def duration(self) -> float:
        return self._loop.time() - self._began

    def request_stop(self) -> None:
        self.context.stop()

    def cancel(self) -> None:
        """Ask the function to stop, and cancel it if it is a coroutine."""
        self.request_stop()
        if not self.has_ended and not self._runs_in_thread:
            self.was_cancelled = True
            self.task.cancel()

    async def _run(self, definition: ServiceDefinition) -> BaseException | None:
        args = (self.context,) if definition.takes_context else ()
        try:
            if definition.is_async:
                await definition.fn(*args)
            else:
                answer = await self._call_in_thread(definition.fn, *args)
                # A plain function may return a coroutine.
                if inspect.isawaitable(answer):
                    await answer
        # `_call_in_thread` turns every error of a thread into an Exception. A KeyboardInterrupt in a
        # coroutine is not caught: it ends the program.
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            return error
        return None

    async def _call_in_thread(self, fn: Callable[..., Any], *args: Any) -> Any:
        self._runs_in_thread = True
        try:
            answer, error = await call_in_thread(fn, *args)
        finally:
            self._runs_in_thread = False
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise RuntimeError(f"it ended with {type(error).__name__}") from error
        return answer


def call_in_thread(
    fn: Callable[..., Any], *args: Any
) -> asyncio.Future[tuple[Any, BaseException | None]]:
    """Call `fn` in a thread of its own, because a continuous service must not occupy a thread of a pool."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def set_result(answer: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((answer, error))

    def call() -> None:
        answer, error = None, None
        try:
            answer = fn(*args)
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(set_result, answer, error)
        except RuntimeError:
            return  # the loop is closed, and nothing waits for the result

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(call,), name="rota service", daemon=True).start()
    return future


class ServiceTerm:
    """Term of a service and its transactions.

    A transaction that asserts the term blocks the next election until it ends. The server ends it after
    `lease` seconds without a statement, so a process that freezes inside it is replaced like any other.
    """

    def __init__(self, term: Term, raw_connections: RawConnections, lease: float) -> None:
        self._term = term
        self._lease = lease
        self._raw_connections = raw_connections
        self._loop = asyncio.get_running_loop()

    @property
    def number(self) -> int:
        return self._term.number

    @property
    def held(self) -> bool:
        return self._term.held

    async def assert_held(self, connection: Any) -> None:
        await self._term.assert_held(connection)

    def run_assertion(self, connection: Any) -> Any:
        return self._term.run_assertion(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._raw_connections.transaction(self._lease) as connection:
            await self._term.assert_held(connection)
            connection.answer_timeout = None  # the user's statements may take as long as they need
            try:
                yield connection
            finally:
                connection.answer_timeout = self._raw_connections.answer_timeout

    @contextmanager
    def sync_transaction(self) -> Iterator[Connection[Any]]:
        lend = self._raw_connections.sync_transaction
        with lend(self._run_in_loop, self._lease) as connection:
            self._term.run_assertion(connection)
            connection.answer_timeout = None
            try:
                yield connection
            finally:
                connection.answer_timeout = self._raw_connections.answer_timeout

    def _run_in_loop(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
