"""Pool of connections for short use.

A connection is opened when it is needed and none is idle, up to a limit. The most recently used one is
lent first, so that a program with little load keeps one open and not ten. A connection is closed instead
of reused if it is broken, is inside a transaction, or its user was cancelled. If one finds that its
server is shutting down or has become a standby, the idle ones are closed, too. Lending costs a list
operation, not a round trip: that matters for every `start`.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota.errors import DatabaseUnavailable
from rota.store import pg_errors

if TYPE_CHECKING:
    from psycopg import AsyncConnection

C = TypeVar("C", bound="AsyncConnection[Any]")

MAX_IDLE_SECONDS = 60.0
"""Time after which an unused connection is closed."""


class ConnectionPool(Generic[C]):
    def __init__(self, connect: Callable[[], Awaitable[C]], limit: int, timeout: float) -> None:
        self._connect = connect
        self._limit = limit
        self._timeout = timeout
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[tuple[C, float]] = []
        self._closed = False
        self.limit = limit
        self.busy = 0
        self.wait_count = 0
        """Number of times that all connections were busy."""

    @property
    def idle(self) -> int:
        return len(self._idle)

    async def acquire(self) -> C:
        """Lend a connection, until `release` is called for it."""
        if self._slots.locked():
            self.wait_count += 1
            await self._wait_for_slot()
        else:
            await self._slots.acquire()
        self.busy += 1
        try:
            while self._idle:
                connection, _ = self._idle.pop()
                if not _is_closed_by_server(connection):
                    return connection
                await connection.close()
            return await self._connect()
        except BaseException:
            self.busy -= 1
            self._slots.release()
            raise

    async def release(self, connection: C, error: BaseException | None = None) -> None:
        """Take a connection back. `error` is the exception that ended its use, if any."""
        self.busy -= 1
        self._slots.release()
        if error is not None and pg_errors.is_server_gone(error):
            await connection.close()
            await self._close_idle()
            return
        interrupted = error is not None and not isinstance(error, Exception)
        # 0 is libpq's "idle": neither in a transaction nor broken.
        if self._closed or interrupted or connection.pgconn.transaction_status != 0:
            await connection.close()
            return
        now = time.monotonic()
        self._idle.append((connection, now))
        while now - self._idle[0][1] > MAX_IDLE_SECONDS:
            await self._idle.pop(0)[0].close()

    async def _wait_for_slot(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        except TimeoutError:
            raise DatabaseUnavailable(
                f"all {self._limit} connections were busy for {self._timeout:g} s; "
                "raise ROTA_CONNECTIONS or start fewer things at once"
            ) from None

    async def close(self) -> None:
        self._closed = True
        await self._close_idle()

    async def _close_idle(self) -> None:
        while self._idle:
            await self._idle.pop()[0].close()


def _is_closed_by_server(connection: AsyncConnection[Any]) -> bool:
    """True if the server closed the idle connection: its socket is then readable."""
    if connection.closed:
        return True
    poller = select.poll()  # unlike select(), it accepts any file descriptor number
    poller.register(connection.pgconn.socket, select.POLLIN)
    return bool(poller.poll(0))
