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
from rota.store import address, failures
from rota.store.connections import Connections
from rota.store.query import Query, Row, encoded

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor

    from rota.store.session import Session

T = TypeVar("T")

# What every connection of ours relies on, whatever the role's defaults are.
_SESSION = {
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
_ENGINE = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}

ANSWER_WITHIN = 5.0
"""Seconds after which the server would have ended a statement itself, if it were still there."""


class Database:
    """Runs queries. Opens nothing until the first one; belongs to one event loop.

    `direct` is another way to the same database, past a pooler, for what needs a session of its own.
    """

    def __init__(self, dsn: str, settings: Settings, direct: str | None = None) -> None:
        self.dsn = dsn
        self.direct = direct
        self.schema = settings.schema
        self.settings = settings
        self.connections = self._connections = Connections(
            self.connect, settings.connections, patience=settings.patience
        )

    async def connect(self, *, engine: bool = False, direct: bool = False) -> Session:
        """A connection of one's own. `engine`: for the loop that claims and completes; `direct`: past
        the pooler, if there is a way, which its `pooled` says."""
        from rota.store.session import Session

        settings = {
            **_SESSION,
            "statement_timeout": f"{int(self.settings.statement_timeout * 1000)}ms",
            **(_ENGINE if engine else {}),
        }
        try:
            params = address.parameters((direct and self.direct) or self.dsn)
            session = await Session.connect(autocommit=True, prepare_threshold=0, **params)
        except Exception as error:
            raise failures.unconnected(error) from error
        try:
            await session.set_up(settings, self.settings.pooler, float(params["connect_timeout"]))
        except BaseException as error:
            await session.close()
            if isinstance(error, Exception) and failures.is_passing(error):
                raise failures.unconnected(error) from error
            raise
        session.deadline = self.settings.statement_timeout + ANSWER_WITHIN
        return session

    @asynccontextmanager
    async def connection(self, patience: float = 0.0) -> AsyncIterator[Session]:
        """A connection for a moment; errors a user can act on are said in our words. `patience`: how long
        to wait for a database that is away, before anything is sent."""
        with failures.in_our_words(self.schema, ours=True):
            connection = await self._take(patience)
            try:
                yield connection
            except BaseException as error:
                await self._connections.give_back(connection, error)
                raise
            await self._connections.give_back(connection)

    @asynccontextmanager
    async def transaction(self, patience: float = 0.0) -> AsyncIterator[Session]:
        """The same, in a transaction that has all our settings, also through a pooler."""
        async with self.connection(patience) as connection, connection.transaction():
            yield connection

    async def run(self, query: Query[Row], patience: float = 0.0) -> list[Row]:
        """Run one query on a connection of ours, once."""
        return await self._once(lambda on: run(on, query, self.schema), patience)

    async def exchange(
        self, segments: Sequence[Sequence[Query[Any]]], patience: float = 0.0
    ) -> list[list[list[Any]]]:
        """Run several transactions on a connection of ours, once."""
        return await self._once(lambda on: exchange(on, segments, self.schema), patience)

    async def _once(self, do: Callable[[Session], Awaitable[T]], patience: float) -> T:
        with failures.in_our_words(self.schema, ours=True):
            try:
                return await self._lent(do)
            except Exception as error:
                if not patience or not failures.is_unsent(error):
                    raise
            return await self._patiently(lambda: self._lent(do), patience, failures.is_unsent)

    async def _lent(self, do: Callable[[Session], Awaitable[T]]) -> T:
        connection = await self._connections.take()
        try:
            answer = await do(connection)
        except BaseException as error:
            await self._connections.give_back(connection, error)
            raise
        await self._connections.give_back(connection)
        return answer

    async def _take(self, patience: float) -> Session:
        try:
            return await self._connections.take()
        except DatabaseUnavailable as error:
            if not patience or not failures.is_unsent(error):
                raise
        return await self._patiently(self._connections.take, patience, failures.is_unsent)

    async def one(self, query: Query[Row]) -> Row | None:
        rows = await self.run(query)
        return rows[0] if rows else None

    async def insist(self, query: Query[Row], patience: float | None = None) -> list[Row]:
        """Run a query that can be repeated, again and again while the database is away."""
        rows: list[Row] = (await self.insist_on([query], patience))[0]
        return rows

    async def insist_on(
        self, queries: Sequence[Query[Any]], patience: float | None = None
    ) -> list[list[Any]]:
        """The same for several queries that are one transaction."""

        async def once() -> list[list[Any]]:
            return (await self.exchange([queries]))[0]

        patience = self.settings.patience if patience is None else patience
        return await self._patiently(once, patience, failures.is_passing)

    async def _patiently(
        self,
        once: Callable[[], Awaitable[T]],
        patience: float,
        again: Callable[[BaseException], bool],
    ) -> T:
        deadline = time.monotonic() + patience
        pause = 0.05
        while True:
            try:
                return await once()
            except Exception as error:
                if not again(error):
                    raise
                if time.monotonic() + pause > deadline:
                    raise DatabaseUnavailable(
                        f"the database did not answer in time: {failures.first_line(error)}"
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
        await self._connections.close()


async def run(connection: AsyncConnection[Any], query: Query[Row], schema: str) -> list[Row]:
    """Run one query on this connection."""
    if _needs_settings(connection):
        [[rows]] = await _with_settings(connection, [[query]], schema)
        return rows
    cursor = connection.cursor(binary=True)
    await cursor.execute(encoded(query.statement, schema), query.params)
    return query.read(await cursor.fetchall()) if _has_rows(cursor) else []


async def exchange(
    connection: AsyncConnection[Any], segments: Sequence[Sequence[Query[Any]]], schema: str
) -> list[list[list[Any]]]:
    """Run several transactions in one round trip; each segment commits or fails by itself.

    Without the sync in between, all would be one transaction, and a failing claim would undo the
    completions sent with it.
    """
    if _needs_settings(connection):
        return await _with_settings(connection, segments, schema)
    if len(segments) == 1 and len(segments[0]) == 1:
        return [[await run(connection, segments[0][0], schema)]]
    cursors = []
    async with connection.pipeline() as pipeline:
        for number, segment in enumerate(segments):
            if number:
                await pipeline.sync()
            for query in segment:
                cursor = connection.cursor(binary=True)
                await cursor.execute(encoded(query.statement, schema), query.params)
                cursors.append((number, query, cursor))
    answers: list[list[list[Any]]] = [[] for _ in segments]
    for number, query, cursor in cursors:
        rows = await cursor.fetchall() if _has_rows(cursor) else []
        answers[number].append(query.read(rows))
    return answers


def _needs_settings(connection: AsyncConnection[Any]) -> bool:
    """Whether a transaction has to bring its settings along: through a pooler, outside of one."""
    # 0 is libpq's "idle". A test's own connection is not one of ours.
    return getattr(connection, "pooled", False) and connection.pgconn.transaction_status == 0


async def _with_settings(
    connection: AsyncConnection[Any], segments: Sequence[Sequence[Query[Any]]], schema: str
) -> list[list[list[Any]]]:
    texts = [
        [(encoded(query.statement, schema), query.params) for query in segment]
        for segment in segments
    ]
    answers = await cast("Session", connection).transact(texts)
    return [
        [query.read(rows) for query, rows in zip(segment, answer, strict=True)]
        for segment, answer in zip(segments, answers, strict=True)
    ]


def _has_rows(cursor: AsyncCursor[Any]) -> bool:
    # Not `cursor.description`, which makes an object for each column to answer.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0
