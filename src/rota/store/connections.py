"""A few connections, lent to whoever needs one for a moment.

A connection is opened when somebody needs it and none is idle, up to a limit; it comes back to the top
of the pile, so that a quiet program keeps one and not ten. What comes back broken, or inside a
transaction, is closed instead. Lending costs a list operation, not a round trip: on the way of every
`start` that is what decides.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rota.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from psycopg import AsyncConnection

IDLE_AFTER = 60.0
"""Seconds after which a connection nobody needed is closed."""

FRESH = 0.05
"""Seconds after its last use in which a connection is taken to be alive without a look."""


class Connections:
    def __init__(
        self, connect: Callable[[], Awaitable[AsyncConnection[Any]]], limit: int, patience: float
    ) -> None:
        self._connect = connect
        self._limit = limit
        self._patience = patience
        self._places = asyncio.Semaphore(limit)
        self._idle: list[tuple[AsyncConnection[Any], float]] = []
        self._closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        connection = await self.take()
        try:
            yield connection
        finally:
            await self.give_back(connection)

    async def take(self) -> AsyncConnection[Any]:
        """A connection, to be given back."""
        if self._places.locked():
            await self._wait_for_a_place()
        else:
            await self._places.acquire()
        try:
            while self._idle:
                connection, since = self._idle.pop()
                if time.monotonic() - since < FRESH or not _has_ended(connection):
                    return connection
                await connection.close()
            return await self._connect()
        except BaseException:
            self._places.release()
            raise

    async def give_back(self, connection: AsyncConnection[Any]) -> None:
        self._places.release()
        # 0 is libpq's "idle": neither in a transaction nor broken.
        if self._closed or connection.pgconn.transaction_status != 0:
            await connection.close()
            return
        now = time.monotonic()
        self._idle.append((connection, now))
        while now - self._idle[0][1] > IDLE_AFTER:
            await self._idle.pop(0)[0].close()

    async def _wait_for_a_place(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            raise DatabaseUnavailable(
                f"all {self._limit} connections were busy for {self._patience:g} s; "
                "raise ROTA_CONNECTIONS or start fewer things at once"
            ) from None

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop()[0].close()


def _has_ended(connection: AsyncConnection[Any]) -> bool:
    """Whether the server has hung up while nobody looked: then there is something to read, the end."""
    if connection.closed:
        return True
    look = select.poll()  # unlike select(), it takes any number of open files
    look.register(connection.pgconn.socket, select.POLLIN)
    return bool(look.poll(0))
