"""Connections for users' transactions, with the parameters of their DSN and none of Rota's settings.

They are separate from the pool for queries, so that jobs inside a transaction cannot block other
operations. Nothing is prepared, so they also work through a pooler.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rota.errors import DatabaseUnavailable
from rota.store import claims, dsn, pg_errors
from rota.store.pool import ConnectionPool

if TYPE_CHECKING:
    from rota.store.connection import PgConnection, SyncPgConnection
    from rota.store.database import Database

log = logging.getLogger("rota")

# The timeout frees what the transaction has locked if its process freezes inside it. The pid and start
# time identify the backend, which may outlive a lost connection.
_PREPARE_TRANSACTION = """
select pg_backend_pid(), now()
 where set_config('idle_in_transaction_session_timeout', %s, true) is not null
"""

IDLE_TIMEOUT = 60.0
"""Seconds without a statement after which the server rolls back a job's transaction."""


class RawConnections:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._dsn = database.dsn
        self._limit = database.settings.connections
        self._timeout = database.settings.outage_timeout
        self._connections = ConnectionPool(self._connect, self._limit, self._timeout)
        self._slots = threading.BoundedSemaphore(self._limit)
        self._idle: list[SyncPgConnection] = []
        self.answer_timeout = database.settings.statement_timeout

    @asynccontextmanager
    async def transaction(self, idle_timeout: float = IDLE_TIMEOUT) -> AsyncIterator[PgConnection]:
        """Lend a connection inside a transaction. Its waits have a deadline until the caller removes it.

        The server rolls the transaction back after `idle_timeout` seconds without a statement.
        """
        connection = await self._connections.acquire()
        backend: list[Any] = []
        try:
            async with connection.transaction():
                prepared = await connection.execute(
                    _PREPARE_TRANSACTION, _milliseconds(idle_timeout)
                )
                backend = await prepared.fetchall()
                yield connection
        except BaseException as error:
            is_lost = connection.broken
            await self._connections.release(connection, error)
            if is_lost and backend:
                await self.terminate_backend(*backend[0])
            raise
        await self._connections.release(connection)

    @contextmanager
    def sync_transaction(
        self, run_in_loop: Callable[[Any], Any], idle_timeout: float = IDLE_TIMEOUT
    ) -> Iterator[SyncPgConnection]:
        """Lend a connection to code in a thread. `run_in_loop` runs a coroutine in the event loop."""
        if not self._slots.acquire(timeout=self._timeout):
            raise DatabaseUnavailable(
                f"all {self._limit} connections for transactions were busy for {self._timeout:g} s; raise "
                "ROTA_CONNECTIONS, or run fewer such jobs at once"
            )
        try:
            connection = self._acquire_sync()
            backend: list[Any] = []
            try:
                with connection.transaction():
                    prepared = connection.execute(_PREPARE_TRANSACTION, _milliseconds(idle_timeout))
                    backend = prepared.fetchall()
                    yield connection
            except BaseException:
                is_lost = connection.broken
                connection.close()
                if is_lost and backend:
                    run_in_loop(self.terminate_backend(*backend[0]))
                raise
            self._idle.append(connection)
        finally:
            self._slots.release()

    async def terminate_backend(self, pid: int, transaction_started: datetime) -> None:
        """Terminate the backend of a lost connection: the server may not have noticed the loss."""
        try:
            await self._database.run(claims.terminate_backend(pid, transaction_started))
        except Exception as error:
            log.warning("a lost transaction may hold its job for another minute: %s", error)

    async def _connect(self) -> PgConnection:
        from psycopg import IsolationLevel

        from rota.store.connection import PgConnection

        try:
            connection = await PgConnection.connect(
                autocommit=True, prepare_threshold=None, **dsn.connection_parameters(self._dsn)
            )
        except Exception as error:
            raise pg_errors.connect_error(error) from error
        connection.answer_timeout = self.answer_timeout
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        await connection.set_read_only(False)
        return connection

    def _acquire_sync(self) -> SyncPgConnection:
        from psycopg import IsolationLevel

        from rota.store.connection import SyncPgConnection

        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        try:
            connection = SyncPgConnection.connect(
                autocommit=True, prepare_threshold=None, **dsn.connection_parameters(self._dsn)
            )
        except Exception as error:
            raise pg_errors.connect_error(error) from error
        connection.answer_timeout = self.answer_timeout
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        connection.read_only = False
        return connection

    async def close(self) -> None:
        await self._connections.close()
        while self._idle:
            self._idle.pop().close()


def _milliseconds(seconds: float) -> list[str]:
    return [f"{max(1, round(seconds * 1000))}ms"]
