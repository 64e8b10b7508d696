"""The database as one program sees it: where it is, how our connections are set, how a query is run.

Connections say explicitly what they rely on (READ COMMITTED, time-outs, no read-only default), so that
settings of the role or the database change nothing. Everything about time and plans that the hot
statements need is set once per connection, not once per statement; through a pooler, where there is no
such thing, with every transaction. Who runs a query need not know which it is.
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

# What every connection of ours relies on, whatever the role's defaults are.
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

# The hot statements have one good plan, the one over indexes, whatever the statistics say at the moment;
# planning them anew each time would cost more than running them.
_ENGINE_SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}

ANSWER_GRACE_SECONDS = 5.0
"""Seconds after which the server would have ended a statement itself, if it were still there."""


class Database:
    """Runs queries. Opens nothing until the first one; belongs to one event loop.

    `direct` is another way to the same database, past a pooler, for what needs a session of its own.
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
        """A connection of one's own. `engine`: for the loop that claims and completes; `direct`: past
        the pooler, if there is a way, which its `pooled` says."""
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
    async def connection(self, outage_timeout: float = 0.0) -> AsyncIterator[PgConnection]:
        """A connection for a moment; errors a user can act on are said in our words. `patience`: how long
        to wait for a database that is away, before anything is sent."""
        with pg_errors.translated(self.schema, own_connection=True):
            connection = await self._acquire(outage_timeout)
            try:
                yield connection
            except BaseException as error:
                await self._pool.release(connection, error)
                raise
            await self._pool.release(connection)

    @asynccontextmanager
    async def transaction(self, outage_timeout: float = 0.0) -> AsyncIterator[PgConnection]:
        """The same, in a transaction that has all our settings, also through a pooler."""
        async with self.connection(outage_timeout) as connection, connection.transaction():
            yield connection

    async def run(self, query: Query[Row], outage_timeout: float = 0.0) -> list[Row]:
        """Run one query on a connection of ours, once."""
        return await self._run_once(lambda on: run(on, query, self.schema), outage_timeout)

    async def pipeline(
        self, transactions: Sequence[Sequence[Query[Any]]], outage_timeout: float = 0.0
    ) -> list[list[list[Any]]]:
        """Run several transactions on a connection of ours, once."""
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
                if not outage_timeout or not pg_errors.was_not_sent(error):
                    raise
            return await self._retry(
                lambda: self._run_on_pooled(operation), outage_timeout, pg_errors.was_not_sent
            )

    async def _run_on_pooled(self, operation: Callable[[PgConnection], Awaitable[T]]) -> T:
        connection = await self._pool.acquire()
        try:
            answer = await operation(connection)
        except BaseException as error:
            await self._pool.release(connection, error)
            raise
        await self._pool.release(connection)
        return answer

    async def _acquire(self, outage_timeout: float) -> PgConnection:
        try:
            return await self._pool.acquire()
        except DatabaseUnavailable as error:
            if not outage_timeout or not pg_errors.was_not_sent(error):
                raise
        return await self._retry(self._pool.acquire, outage_timeout, pg_errors.was_not_sent)

    async def fetch_one(self, query: Query[Row]) -> Row | None:
        rows = await self.run(query)
        return rows[0] if rows else None

    async def run_with_retry(
        self, query: Query[Row], outage_timeout: float | None = None
    ) -> list[Row]:
        """Run a query that can be repeated, again and again while the database is away."""
        rows: list[Row] = (await self.transact_with_retry([query], outage_timeout))[0]
        return rows

    async def transact_with_retry(
        self, queries: Sequence[Query[Any]], outage_timeout: float | None = None
    ) -> list[list[Any]]:
        """The same for several queries that are one transaction."""

        async def transact() -> list[list[Any]]:
            return (await self.pipeline([queries]))[0]

        outage_timeout = self.settings.outage_timeout if outage_timeout is None else outage_timeout
        return await self._retry(transact, outage_timeout, pg_errors.is_transient)

    async def _retry(
        self,
        operation: Callable[[], Awaitable[T]],
        outage_timeout: float,
        is_retryable: Callable[[BaseException], bool],
    ) -> T:
        deadline = time.monotonic() + outage_timeout
        pause = 0.05
        while True:
            try:
                return await operation()
            except Exception as error:
                if not is_retryable(error):
                    raise
                if time.monotonic() + pause > deadline:
                    raise DatabaseUnavailable(
                        f"the database did not answer in time: {pg_errors.first_line(error)}"
                    ) from error
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, 1.0)

    async def copy(
        self, statement: str, chunks: Iterable[bytes], connection: AsyncConnection[Any]
    ) -> None:
        """Copy in, chunk by chunk: the server stores one while we write the next."""
        cursor = connection.cursor()
        async with cursor.copy(encoded(statement, self.schema)) as copy:
            for chunk in chunks:
                await copy.write(chunk)

    async def close(self) -> None:
        await self._pool.close()


async def run(connection: AsyncConnection[Any], query: Query[Row], schema: str) -> list[Row]:
    """Run one query on this connection."""
    if _needs_settings(connection):
        [[rows]] = await _pipeline_with_settings(connection, [[query]], schema)
        return rows
    cursor = connection.cursor(binary=True)
    await cursor.execute(encoded(query.statement, schema), query.params)
    return query.read(await cursor.fetchall()) if _has_rows(cursor) else []


async def pipeline(
    connection: AsyncConnection[Any], transactions: Sequence[Sequence[Query[Any]]], schema: str
) -> list[list[list[Any]]]:
    """Run several transactions in one round trip; each segment commits or fails by itself.

    Without the sync in between, all would be one transaction, and a failing claim would undo the
    completions sent with it.
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
    """Whether a transaction has to bring its settings along: through a pooler, outside of one."""
    # 0 is libpq's "idle". A test's own connection is not one of ours.
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
    # Not `cursor.description`, which makes an object for each column to answer.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0
