"""Database of one program: connection settings, the pool and the ways to run a query.

Connections set explicitly all that they depend on (READ COMMITTED, timeouts, no read-only default), so
that defaults of the role or the database have no effect. Settings for timeouts and plans of the hot
statements are sent once per connection, not once per statement. Through a pooler, where sessions are
shared, they are sent with every transaction. Code that runs a query does not depend on which of the two
applies.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rota.errors import DatabaseUnavailable
from rota.model.settings import Settings
from rota.store import dsn as store_dsn
from rota.store import pg_errors
from rota.store.pool import ConnectionPool
from rota.store.query import Query, Row, encoded

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor

    from rota.store.connection import PgConnection

T = TypeVar("T")

# Settings of every connection, independent of the role's defaults.
_SESSION_SETTINGS = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "10s",
    "idle_session_timeout": "0",
    "lock_timeout": "2s",
    "client_min_messages": "warning",
    "search_path": "pg_catalog",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "array_nulls": "on",
}

# The hot statements have one good plan, over indexes, independent of current statistics. Planning
# them for each execution would cost more than running them.
_ENGINE_SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}

ANSWER_GRACE_SECONDS = 5.0
"""Time after the statement timeout within which a live server would have ended the statement itself."""


class Database:
    """Runs queries. Opens no connection before the first one; belongs to one event loop.

    `direct_dsn` reaches the same database without a pooler, for features that need their own session.
    """

    def __init__(self, dsn: str, settings: Settings, direct_dsn: str | None = None) -> None:
        self.dsn = dsn
        self.direct_dsn = direct_dsn
        self.schema = settings.schema
        self.settings = settings
        self.pool = self._pool = ConnectionPool(
            self.connect, settings.connections, timeout=settings.outage_timeout
        )

    async def connect(self, *, engine: bool = False, direct: bool = False) -> PgConnection:
        """Open a connection outside the pool.

        `engine` adds the planner settings of the claim loop. `direct` bypasses the pooler if there is a
        direct DSN; otherwise the connection may be `pooled`.
        """
        from rota.store.connection import PgConnection

        settings = {
            **_SESSION_SETTINGS,
            "statement_timeout": f"{int(self.settings.statement_timeout * 1000)}ms",
            **(_ENGINE_SETTINGS if engine else {}),
        }
        try:
            params = store_dsn.connection_parameters((direct and self.direct_dsn) or self.dsn)
            connection = await PgConnection.connect(autocommit=True, prepare_threshold=0, **params)
        except Exception as error:
            raise pg_errors.connect_error(error) from error
        try:
            await connection.set_up(
                settings, self.settings.pooler, float(params["connect_timeout"])
            )
        except BaseException as error:
            await connection.close()
            if isinstance(error, Exception) and pg_errors.is_transient(error):
                raise pg_errors.connect_error(error) from error
            raise
        connection.answer_timeout = self.settings.statement_timeout + ANSWER_GRACE_SECONDS
        return connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PgConnection]:
        """Lend a connection from the pool. All errors of its driver are raised as RotaError."""
        with pg_errors.translated(self.schema, own_connection=True):
            connection = await self._pool.acquire()
            try:
                yield connection
            except BaseException as error:
                await self._pool.release(connection, error)
                raise
            await self._pool.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PgConnection]:
        """Lend a connection in a transaction that has all settings, also through a pooler."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def run(self, query: Query[Row], outage_timeout: float = 0.0) -> list[Row]:
        """Run one query on a pooled connection.

        For `outage_timeout` seconds, repeat it only after errors that prove that it had no effect.
        """
        return await self._run_once(lambda on: run(on, query, self.schema), outage_timeout)

    async def pipeline(
        self, transactions: Sequence[Sequence[Query[Any]]], outage_timeout: float = 0.0
    ) -> list[list[list[Any]]]:
        """Run several transactions on a pooled connection. Pass `outage_timeout` for one only, as for
        `run`."""
        return await self._run_once(
            lambda on: pipeline(on, transactions, self.schema), outage_timeout
        )

    async def _run_once(
        self, operation: Callable[[PgConnection], Awaitable[T]], outage_timeout: float
    ) -> T:
        with pg_errors.translated(self.schema, own_connection=True):
            try:
                return await self._run_on_pooled(operation)
            except Exception as error:
                if not outage_timeout or not pg_errors.is_safe_to_repeat(error):
                    raise
            return await self.retry(lambda: self._run_on_pooled(operation), outage_timeout)

    async def _run_on_pooled(self, operation: Callable[[PgConnection], Awaitable[T]]) -> T:
        connection = await self._pool.acquire()
        try:
            answer = await operation(connection)
        except BaseException as error:
            await self._pool.release(connection, error)
            raise
        await self._pool.release(connection)
        return answer

    async def fetch_one(self, query: Query[Row]) -> Row | None:
        rows = await self.run(query)
        return rows[0] if rows else None

    async def run_with_retry(
        self, query: Query[Row], outage_timeout: float | None = None
    ) -> list[Row]:
        """Run a repeatable query, and retry it while the server cannot run it."""
        rows: list[Row] = (await self.transact_with_retry([query], outage_timeout))[0]
        return rows

    async def transact_with_retry(
        self, queries: Sequence[Query[Any]], outage_timeout: float | None = None
    ) -> list[list[Any]]:
        """Run several repeatable queries in one transaction; retry while the server cannot run them."""

        async def transact() -> list[list[Any]]:
            return (await self.pipeline([queries]))[0]

        outage_timeout = self.settings.outage_timeout if outage_timeout is None else outage_timeout
        return await self.retry(transact, outage_timeout, pg_errors.may_pass)

    async def retry(
        self,
        operation: Callable[[], Awaitable[T]],
        outage_timeout: float,
        is_retryable: Callable[[BaseException], bool] = pg_errors.is_safe_to_repeat,
    ) -> T:
        """Call `operation`, and repeat it for `outage_timeout` seconds while its error is retryable.

        By default an error is retryable if it proves that the transaction had no effect.
        """
        deadline = time.monotonic() + outage_timeout
        pause = 0.05
        may_be_done = False
        while True:
            try:
                return await operation()
            except Exception as error:
                if not is_retryable(error):
                    raise
                may_be_done |= isinstance(error, DatabaseUnavailable) and error.may_be_done
                if time.monotonic() + pause > deadline:
                    unavailable = DatabaseUnavailable(
                        f"the database did not answer in time: {pg_errors.first_line(error)}"
                    )
                    unavailable.may_be_done = may_be_done
                    raise unavailable from error
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, 1.0)

    async def copy(
        self, statement: str, chunks: Iterable[bytes], connection: AsyncConnection[Any]
    ) -> None:
        """Run COPY FROM STDIN in chunks: the server stores one chunk while the client writes the next."""
        cursor = connection.cursor()
        async with cursor.copy(encoded(statement, self.schema)) as copy:
            for chunk in chunks:
                await copy.write(chunk)

    async def close(self) -> None:
        await self._pool.close()


async def run(connection: AsyncConnection[Any], query: Query[Row], schema: str) -> list[Row]:
    """Run one query on `connection`."""
    if _needs_settings(connection):
        [[rows]] = await _pipeline_with_settings(connection, [[query]], schema)
        return rows
    cursor = connection.cursor(binary=True)
    await cursor.execute(encoded(query.statement, schema), query.params)
    return query.read(await cursor.fetchall()) if _has_rows(cursor) else []


async def pipeline(
    connection: AsyncConnection[Any], transactions: Sequence[Sequence[Query[Any]]], schema: str
) -> list[list[list[Any]]]:
    """Run several transactions in one round trip. Each one commits or fails by itself.

    Without the sync between them, all would be one transaction, and a failing claim would roll back the
    outcomes sent with it.
    """
    if _needs_settings(connection):
        return await _pipeline_with_settings(connection, transactions, schema)
    if len(transactions) == 1 and len(transactions[0]) == 1:
        return [[await run(connection, transactions[0][0], schema)]]
    cursors = []
    async with connection.pipeline() as pipe:
        for number, transaction in enumerate(transactions):
            if number:
                await pipe.sync()
            for query in transaction:
                cursor = connection.cursor(binary=True)
                await cursor.execute(encoded(query.statement, schema), query.params)
                cursors.append((number, query, cursor))
    answers: list[list[list[Any]]] = [[] for _ in transactions]
    for number, query, cursor in cursors:
        rows = await cursor.fetchall() if _has_rows(cursor) else []
        answers[number].append(query.read(rows))
    return answers


def _needs_settings(connection: AsyncConnection[Any]) -> bool:
    """True if a transaction must send its settings: through a pooler, outside a transaction."""
    # 0 is libpq's "idle". Connections that tests open themselves have no `pooled`.
    return getattr(connection, "pooled", False) and connection.pgconn.transaction_status == 0


async def _pipeline_with_settings(
    connection: AsyncConnection[Any], transactions: Sequence[Sequence[Query[Any]]], schema: str
) -> list[list[list[Any]]]:
    texts = [
        [(encoded(query.statement, schema), query.params) for query in transaction]
        for transaction in transactions
    ]
    answers = await cast("PgConnection", connection).transact(texts)
    return [
        [query.read(rows) for query, rows in zip(transaction, answer, strict=True)]
        for transaction, answer in zip(transactions, answers, strict=True)
    ]


def _has_rows(cursor: AsyncCursor[Any]) -> bool:
    # `cursor.description` would create an object for each column.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0
