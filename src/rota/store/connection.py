"""Connections to PostgreSQL that detect a pooler.

With `pooled`, the next transaction may use another server connection. Nothing is set, prepared, listened
for or locked there for longer than one transaction. Every transaction sends its settings itself, in the
same round trip.

Every wait has a deadline. A server that disappears silently gives no error for minutes. The connection
is then closed, and the waiting code receives a connection error.

`ReconnectingConnection` is a connection outside the pool. It is opened when needed and replaced when it
breaks.

This module is imported only when a connection is made, because the driver takes long to load.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg import (
    AsyncClientCursor,
    AsyncConnection,
    AsyncTransaction,
    Connection,
    Error,
    IsolationLevel,
    OperationalError,
    sql,
)
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads

from rota.store.database import Database, pipeline
from rota.store.query import Query

if TYPE_CHECKING:
    from psycopg import AsyncConnection


class ReconnectingConnection:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: AsyncConnection[Any] | None = None

    async def send(self, transactions: Sequence[Sequence[Query[Any]]]) -> list[list[list[Any]]]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(engine=True)
        return await pipeline(self._connection, transactions, self._database.schema)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


T = TypeVar("T")
Transactions = Sequence[Sequence[tuple[bytes, Mapping[str, Any]]]]

# If the backend pid from the login differs from the one that answers, a pooler is in between.
# Settings then apply to this transaction only, because the session is shared.
_APPLY_SETTINGS = b"""
select count(set_config(name, value, %(pooled)s or pg_backend_pid() <> %(pid)s)) >= 0
       and (%(pooled)s or pg_backend_pid() <> %(pid)s)
  from unnest(%(names)s::text[], %(values)s::text[]) as setting (name, value)
"""
_APPLY_SETTINGS_DIRECT = _APPLY_SETTINGS.replace(
    b"%(pooled)s or pg_backend_pid() <> %(pid)s", b"false"
)

_BEGIN = b"begin isolation level read committed, read write, not deferrable"


CANCEL_SECONDS = 0.5
"""Time that the server gets to cancel an abandoned statement, before the socket is shut down."""


class ConnectionSilent(OperationalError):
    """No answer within the timeout, and no error from the network either.

    Other connections that were open at the time are probably dead, too.
    """


class PgConnection(AsyncConnection[Any]):
    pooled = False
    answer_timeout: float | None = None
    """Seconds that one wait for the server may take; None for no limit."""

    _settings = b""
    _wait_ends_at: float | None = None
    _deadline_timer: asyncio.TimerHandle | None = None

    async def set_up(self, settings: Mapping[str, str], pooler: str, answer_timeout: float) -> None:
        """Detect a pooler and apply the settings, once for the session or in every transaction."""
        # JSON is returned as bytes: the codec decodes it once, into the requested type.
        set_json_loads(_raw, self)
        self.answer_timeout = answer_timeout
        cursor = await self.execute(
            _APPLY_SETTINGS_DIRECT if pooler == "no" else _APPLY_SETTINGS,
            {
                "pid": self.info.backend_pid,
                "pooled": pooler == "yes",
                "names": list(settings),
                "values": list(settings.values()),
            },
            prepare=False,
        )
        [(self.pooled,)] = await cursor.fetchall()
        if self.pooled:
            await self._set_up_pooled(settings)

    async def _set_up_pooled(self, settings: Mapping[str, str]) -> None:
        self.prepare_threshold = None
        await self.set_isolation_level(IsolationLevel.READ_COMMITTED)
        await self.set_read_only(False)
        await self.set_deferrable(False)
        # Answers arrive as text here and are parsed after the transaction and its settings have
        # ended.
        self.adapters.register_loader("timestamptz", _TimestampLoader)
        applied = {**settings, "extra_float_digits": "1"}
        each = sql.SQL(", ").join(
            sql.SQL("set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
            for name, value in applied.items()
        )
        self._settings = sql.SQL("select {}").format(each).as_bytes(self)

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open on this connection."""
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    # Transactions

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[AsyncTransaction]:
        """Open a transaction as psycopg does, and apply the settings in it if there is a pooler."""
        needs_settings = self.pooled and self.is_idle
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            if needs_settings:
                await self.execute(self._settings)
            yield transaction

    async def transact(self, transactions: Transactions) -> list[list[list[Any]]]:
        """Run several transactions through a pooler, in one round trip.

        If one fails, those before it have committed and those after it are not started.

        They are sent as text in a single message. A pipeline would not do: the driver sends a flush
        after the last sync, and PgBouncer then reserves the server connection until the next message.
        """
        cursor = AsyncClientCursor(self)
        parts: list[bytes] = []
        for transaction in transactions:
            statements = [cursor.mogrify(text, params).encode() for text, params in transaction]
            parts += [_BEGIN, self._settings, *statements, b"commit"]
        try:
            await cursor.execute(b"\n;\n".join(parts))
        except BaseException as error:
            await self._leave_transaction(error)
            raise
        answers = []
        for transaction in transactions:
            cursor.nextset()
            answers.append([await _next_rows(cursor) for _ in transaction])
            cursor.nextset()
            cursor.nextset()
        return answers

    async def _leave_transaction(self, error: BaseException) -> None:
        """Roll back after a failure. Close the connection if it is still not idle."""
        if isinstance(error, Exception) and not self.closed:
            with suppress(Error):
                await self.rollback()
        if not self.is_idle:
            await self.close()

    # Deadlines

    async def wait(self, gen: PQGen[T], *args: Any, **named: Any) -> T:
        if self.answer_timeout is None:
            return await super().wait(gen, *args, **named)
        loop = asyncio.get_running_loop()
        ends_at = self._wait_ends_at = loop.time() + self.answer_timeout
        # One timer serves many waits: most end long before it fires.
        if self._deadline_timer is None or self._deadline_timer.when() > ends_at:
            if self._deadline_timer is not None:
                self._deadline_timer.cancel()
            self._deadline_timer = loop.call_at(ends_at, self._check_deadline)
        try:
            return await super().wait(gen, *args, **named)
        except OperationalError as error:
            if ends_at <= loop.time():
                raise ConnectionSilent(
                    f"no answer in {self.answer_timeout:g} s, so this connection was closed"
                ) from error
            raise
        finally:
            self._wait_ends_at = None

    def _check_deadline(self) -> None:
        """Shut the socket down if the current wait has passed its deadline, else set the timer again."""
        self._deadline_timer = None
        if self._wait_ends_at is None:
            return
        loop = asyncio.get_running_loop()
        if self._wait_ends_at <= loop.time():
            self._shutdown_socket()
        else:
            self._deadline_timer = loop.call_at(self._wait_ends_at, self._check_deadline)

    async def _try_cancel(self, *, timeout: float = 5.0) -> None:
        """Cancel the statement on the server. Shut the socket down if that takes too long."""
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, self._shutdown_socket)
        await super()._try_cancel(timeout=min(timeout, CANCEL_SECONDS))

    def _shutdown_socket(self) -> None:
        shutdown_socket(self)


class SyncPgConnection(Connection[Any]):
    """Synchronous connection for code in threads."""

    answer_timeout: float | None = None

    def wait(self, gen: PQGen[T], *args: Any, **named: Any) -> T:
        if self.answer_timeout is None:
            return super().wait(gen, *args, **named)
        timer = threading.Timer(self.answer_timeout, shutdown_socket, [self])
        timer.daemon = True
        timer.start()
        try:
            return super().wait(gen, *args, **named)
        finally:
            timer.cancel()


def shutdown_socket(connection: PgConnection | SyncPgConnection) -> None:
    """Shut the socket down without closing it, so that a reader in another thread receives end of file."""
    with suppress(OSError, OperationalError):
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)


class _TimestampLoader(Loader):
    """Parses timestamps without the session's DateStyle: the session may be another one by now."""

    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(bytes(data).decode())


async def _next_rows(cursor: AsyncClientCursor[Any]) -> list[Any]:
    cursor.nextset()
    result = cursor.pgresult
    return await cursor.fetchall() if result is not None and result.nfields else []


def _raw(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)
