"""One step while its code runs: what it does through `ctx.transaction()` is committed with its own record.

The transaction is opened when the code first asks for it, and stays open until the code has returned; each
`with` block in between is a savepoint. So what the step has written and that it is done are true together,
or not at all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from contextvars import ContextVar, Token
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from rota.engine.tracing import QUIET, Around
from rota.errors import ClaimLost, RotaError, TaskTimeout
from rota.model.replay import Entry
from rota.store import failures, steps
from rota.store.on import run_on

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from rota.engine.transaction import Fence

inside: ContextVar[Step | None] = ContextVar("rota step", default=None)
"""The step whose code this is."""


class Failed(Exception):
    """A step's own code has raised this."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Step:
    """While a step's code runs, and until it is kept."""

    __slots__ = (
        "_at_work",
        "_blocking",
        "_connection",
        "_entry",
        "_fence",
        "_in_thread",
        "_is_over",
        "_open",
        "_open_blocking",
        "_span",
        "_token",
    )

    def __init__(
        self,
        entry: Entry,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        span: Around = QUIET,
    ) -> None:
        self._entry = entry
        self._in_thread = in_thread
        self._at_work = threading.Lock()
        self._is_over = False
        self._span = span
        self._token: Token[Step | None] | None = None
        self._fence: Fence | None = None
        self._connection: AsyncConnection[Any] | None = None
        self._blocking: Connection[Any] | None = None
        # Made when they are needed: most steps open no transaction.
        self._open: AsyncExitStack | None = None
        self._open_blocking: ExitStack | None = None

    @property
    def label(self) -> str:
        return str(self._entry)

    async def __aenter__(self) -> Step:
        self._token = inside.set(self)
        self._span.__enter__()
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._is_over = True
        try:
            if error is not None and (self._open or self._open_blocking):
                await self._undo(error)
        finally:
            cause = error.error if isinstance(error, Failed) else error
            self._span.__exit__(type(cause), cause, None)
        assert self._token is not None
        inside.reset(self._token)

    async def run(self, fn: Callable[[], Any], timeout: float | None) -> Any:
        """Its code: a plain function's in a thread."""
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
        value = await self._in_thread(lambda: self._carried(fn))
        return await value if isinstance(value, Awaitable) else value

    def _carried(self, fn: Callable[[], Any]) -> Any:
        """What it returns or raises, but for the one error that nobody who awaits could be told of."""
        with self._at_work:
            try:
                return fn()
            except StopIteration as error:
                raise RuntimeError("it raised StopIteration") from error

    @property
    def has_transaction(self) -> bool:
        return self._fence is not None

    async def enter(self, fence: Fence) -> AsyncConnection[Any]:
        if self._connection is None:
            self._refuse_second()
            self._open = AsyncExitStack()
            self._refuse_late()
            self._connection = await self._open.enter_async_context(fence.opened())
            self._fence = fence
        return self._connection

    def enter_blocking(self, fence: Fence, wait: Any) -> Connection[Any]:
        if self._blocking is None:
            self._refuse_second()
            self._open_blocking = ExitStack()
            self._refuse_late()
            self._blocking = self._open_blocking.enter_context(fence.opened_blocking(wait))
            self._fence = fence
        return self._blocking

    def _refuse_second(self) -> None:
        if self._fence is not None:
            raise RuntimeError(
                f"{self.label} has a transaction already, of the other kind: use ctx.transaction() or "
                "ctx.blocking.transaction() in a step, not both"
            )

    def _refuse_late(self) -> None:
        """Said once there is something to undo: a thread may come here while the step is given up."""
        if self._is_over:
            raise RotaError(
                f"{self.label} was given up: what it writes now would be kept by nobody"
            )

    async def commit(self, entry: Entry) -> None:
        """Keep what the step came to, and commit."""
        fence = self._fence
        assert fence is not None
        written = False
        try:
            query = steps.record(fence.worker, [(fence.job, entry)])
            if self._open is not None:
                answer = run_on(self._connection, query, fence.schema)
                assert isinstance(answer, Awaitable)
                _check(entry, await answer)
                written = True
                await self._open.aclose()
            elif self._open_blocking is not None:
                await self._in_thread(
                    lambda: _check(entry, _now(run_on(self._blocking, query, fence.schema)))
                )
                written = True
                await self._in_thread(self._open_blocking.close)
        except Exception as error:
            if not written or not failures.is_passing(error):
                raise
            # Cut off while it committed: did it?
            if not await fence.is_kept(entry):
                raise

    async def _undo(self, error: BaseException) -> None:
        trouble = (type(error), error, error.__traceback__)
        try:
            if self._open is not None:
                await self._open.__aexit__(*trouble)
            elif self._open_blocking is not None:
                await self._in_thread(lambda: self._undo_blocking(trouble))
        except Exception:
            # What went wrong first is what the code is told.
            return
        except BaseException as again:
            if again is not error:
                raise

    def _undo_blocking(self, trouble: tuple[Any, Any, Any]) -> None:
        assert self._open_blocking is not None
        # A thread that was given up may be at it still: what it writes must be undone as well.
        with self._at_work:
            self._open_blocking.__exit__(*trouble)


def _now(answer: Any) -> list[steps.Unkept]:
    assert isinstance(answer, list)
    return answer


def _check(entry: Entry, unkept: list[steps.Unkept]) -> None:
    if any(not each.held for each in unkept):
        raise ClaimLost(f"{entry}: the job is no longer held by this worker, and nothing was kept")
    if unkept:
        raise ClaimLost(f"{entry} was kept by another attempt: this one is undone")
