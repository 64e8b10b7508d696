"""Running step: its `ctx.transaction()` is committed together with its journal entry.

The transaction begins with the first `ctx.transaction()` and stays open until the step's code has returned.
Each `with` block is a savepoint. So the data that the step has written and its journal entry are committed
together, or not at all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from contextvars import ContextVar, Token
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from rota.engine.telemetry.tracing import NO_SPAN, SpanScope
from rota.errors import ClaimLost, RotaError, TaskTimeout
from rota.model.journal import JournalEntry
from rota.store import pg_errors, steps
from rota.store.user_connection import run_on

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from rota.engine.execution.job_transaction import JobTransaction

current_step: ContextVar[RunningStep | None] = ContextVar("rota step", default=None)
"""Step whose code is running, or None outside a step."""


class StepRaised(Exception):
    """Carrier of an error that the step's code has raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class RunningStep:
    """Step from the start of its code until its entry is stored."""

    __slots__ = (
        "_connection",
        "_entry",
        "_exit_stack",
        "_has_ended",
        "_job_transaction",
        "_run_in_thread",
        "_span",
        "_sync_connection",
        "_sync_exit_stack",
        "_thread_lock",
        "_token",
    )

    def __init__(
        self,
        entry: JournalEntry,
        run_in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        span: SpanScope = NO_SPAN,
    ) -> None:
        self._entry = entry
        self._run_in_thread = run_in_thread
        self._thread_lock = threading.Lock()
        self._has_ended = False
        self._span = span
        self._token: Token[RunningStep | None] | None = None
        self._job_transaction: JobTransaction | None = None
        self._connection: AsyncConnection[Any] | None = None
        self._sync_connection: Connection[Any] | None = None
        # Created on demand: most steps open no transaction.
        self._exit_stack: AsyncExitStack | None = None
        self._sync_exit_stack: ExitStack | None = None

    @property
    def label(self) -> str:
        return str(self._entry)

    async def __aenter__(self) -> RunningStep:
        self._token = current_step.set(self)
        self._span.__enter__()
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._has_ended = True
        try:
            if error is not None and (self._exit_stack or self._sync_exit_stack):
                await self._roll_back(error)
        finally:
            cause = error.error if isinstance(error, StepRaised) else error
            self._span.__exit__(type(cause), cause, None)
        assert self._token is not None
        current_step.reset(self._token)

    async def run(self, fn: Callable[[], Any], timeout: float | None) -> Any:
        """Run the step's code, a plain function in a thread. Raise TaskTimeout after `timeout` seconds."""
        if timeout is not None:
            try:
                async with asyncio.timeout(timeout) as scope:
                    return await self.run(fn, None)
            except TimeoutError as error:
                if not scope.expired():
                    raise
                raise TaskTimeout(f"it took longer than its timeout of {timeout:g} s") from error
        if iscoroutinefunction(fn):
            return await fn()
        value = await self._run_in_thread(lambda: self._call(fn))
        return await value if isinstance(value, Awaitable) else value

    def _call(self, fn: Callable[[], Any]) -> Any:
        """Call the function. Replace StopIteration, which cannot be raised into a future."""
        with self._thread_lock:
            try:
                return fn()
            except StopIteration as error:
                raise RuntimeError("it raised StopIteration") from error

    @property
    def has_transaction(self) -> bool:
        return self._job_transaction is not None

    async def enter_transaction(self, job_transaction: JobTransaction) -> AsyncConnection[Any]:
        if self._connection is None:
            self._refuse_second_transaction()
            self._exit_stack = AsyncExitStack()
            self._refuse_after_end()
            self._connection = await self._exit_stack.enter_async_context(
                job_transaction.locked_transaction()
            )
            self._job_transaction = job_transaction
        return self._connection

    def enter_transaction_sync(
        self, job_transaction: JobTransaction, run_sync: Any
    ) -> Connection[Any]:
        if self._sync_connection is None:
            self._refuse_second_transaction()
            self._sync_exit_stack = ExitStack()
            self._refuse_after_end()
            self._sync_connection = self._sync_exit_stack.enter_context(
                job_transaction.sync_locked_transaction(run_sync)
            )
            self._job_transaction = job_transaction
        return self._sync_connection

    def _refuse_second_transaction(self) -> None:
        if self._job_transaction is not None:
            raise RuntimeError(
                f"{self.label} has a transaction already, of the other kind: use ctx.transaction() or "
                "ctx.sync.transaction() in a step, not both"
            )

    def _refuse_after_end(self) -> None:
        """Raise if the step has ended.

        Called after the exit stack is created: a thread may open a transaction while the step is abandoned,
        and either this check or the rollback must find it.
        """
        if self._has_ended:
            raise RotaError(f"{self.label} was abandoned; it cannot write any more")

    async def commit(self, entry: JournalEntry) -> None:
        """Write the step's entry in its transaction, and commit."""
        job_transaction = self._job_transaction
        assert job_transaction is not None
        written = False
        try:
            query = steps.record(job_transaction.worker, [(job_transaction.job, entry)])
            if self._exit_stack is not None:
                answer = run_on(self._connection, query, job_transaction.schema)
                assert isinstance(answer, Awaitable)
                _check_written(entry, await answer)
                written = True
                await self._exit_stack.aclose()
            elif self._sync_exit_stack is not None:
                await self._run_in_thread(
                    lambda: _check_written(
                        entry,
                        _as_rows(run_on(self._sync_connection, query, job_transaction.schema)),
                    )
                )
                written = True
                await self._run_in_thread(self._sync_exit_stack.close)
        except Exception as error:
            if not written or not pg_errors.is_transient(error):
                raise
            # The connection broke during the commit, which may have succeeded.
            if not await job_transaction.is_stored(entry):
                raise

    async def _roll_back(self, error: BaseException) -> None:
        exc_info = (type(error), error, error.__traceback__)
        try:
            if self._exit_stack is not None:
                await self._exit_stack.__aexit__(*exc_info)
            elif self._sync_exit_stack is not None:
                await self._run_in_thread(lambda: self._roll_back_sync(exc_info))
        except Exception:
            # The code receives the first error.
            return
        except BaseException as raised:
            if raised is not error:
                raise

    def _roll_back_sync(self, exc_info: tuple[Any, Any, Any]) -> None:
        assert self._sync_exit_stack is not None
        # An abandoned thread may still be running: wait for it, so that its writes are rolled back, too.
        with self._thread_lock:
            self._sync_exit_stack.__exit__(*exc_info)


def _as_rows(answer: Any) -> list[steps.UnwrittenEntry]:
    assert isinstance(answer, list)
    return answer


def _check_written(entry: JournalEntry, unwritten: list[steps.UnwrittenEntry]) -> None:
    if any(not each.is_held for each in unwritten):
        raise ClaimLost(f"{entry}: the job is no longer held by this worker; nothing was stored")
    if unwritten:
        raise ClaimLost(f"{entry} was stored by another attempt; this one is rolled back")
