"""Connections for transactions of the user's own: as his DSN makes them, with nothing of ours set.

They are none of those that starting and asking use, so that jobs inside a transaction cannot keep each
other from anything else. Nothing is prepared, so they work through a pooler, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rota.errors import DatabaseUnavailable
from rota.store import address, claims, failures
from rota.store.connections import Connections

if TYPE_CHECKING:
    from rota.store.database import Database
    from rota.store.session import BlockingSession, Session

log = logging.getLogger("rota")

# A worker that is frozen inside its transaction would keep the job from everybody. And who it is: a
# connection may be lost to us, and not to the server.
_BEGUN = """
select pg_backend_pid(), now()
 where set_config('idle_in_transaction_session_timeout', '60s', true) is not null
"""


class Plain:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._dsn = database.dsn
        self._limit = database.settings.connections
        self._patience = database.settings.patience
        self._connections = Connections(self._connect, self._limit, self._patience)
        self._places = threading.BoundedSemaphore(self._limit)
        self._idle: list[BlockingSession] = []
        self.deadline = database.settings.statement_timeout

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """A connection inside a transaction. Its waits have a deadline, until somebody takes it off."""
        connection = await self._connections.take()
        begun: list[Any] = []
        try:
            async with connection.transaction():
                begun = await (await connection.execute(_BEGUN)).fetchall()
                yield connection
        except BaseException as error:
            lost = connection.broken
            await self._connections.give_back(connection, error)
            if lost and begun:
                await self.exorcise(*begun[0])
            raise
        await self._connections.give_back(connection)

    @contextmanager
    def blocking_transaction(self, wait: Callable[[Any], Any]) -> Iterator[BlockingSession]:
        """The same, for code in a thread. `wait` runs a coroutine in the loop."""
        if not self._places.acquire(timeout=self._patience):
            raise DatabaseUnavailable(
                f"all {self._limit} connections for transactions were busy for {self._patience:g} s; raise "
                "ROTA_CONNECTIONS, or run fewer such jobs at once"
            )
        try:
            connection = self._take()
            begun: list[Any] = []
            try:
                with connection.transaction():
                    begun = connection.execute(_BEGUN).fetchall()
                    yield connection
            except BaseException:
                lost = connection.broken
                connection.close()
                if lost and begun:
                    wait(self.exorcise(*begun[0]))
                raise
            self._idle.append(connection)
        finally:
            self._places.release()

    async def exorcise(self, pid: int, began: datetime) -> None:
        """The line is dead, and the server may not know."""
        try:
            await self._database.run(claims.exorcise(pid, began))
        except Exception as error:
            log.warning("a lost transaction may hold its job for another minute: %s", error)

    async def _connect(self) -> Session:
        from psycopg import IsolationLevel

        from rota.store.session import Session

        try:
            connection = await Session.connect(
                autocommit=True, prepare_threshold=None, **address.parameters(self._dsn)
            )
        except Exception as error:
            raise failures.unconnected(error) from error
        connection.deadline = self.deadline
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        await connection.set_read_only(False)
        return connection

    def _take(self) -> BlockingSession:
        from psycopg import IsolationLevel

        from rota.store.session import BlockingSession

        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        try:
            connection = BlockingSession.connect(
                autocommit=True, prepare_threshold=None, **address.parameters(self._dsn)
            )
        except Exception as error:
            raise failures.unconnected(error) from error
        connection.deadline = self.deadline
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        connection.read_only = False
        return connection

    async def close(self) -> None:
        await self._connections.close()
        while self._idle:
            self._idle.pop().close()
