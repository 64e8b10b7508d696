"""The database as one program sees it: where it is, how our connections are set, how a query is run.

Connections say explicitly what they rely on (READ COMMITTED, time-outs, no read-only default), so that
settings of the role or the database change nothing. Everything about time and plans that the hot
statements need is set once per connection, not once per statement.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rota.errors import DatabaseUnavailable
from rota.model.settings import Settings
from rota.store import failures
from rota.store.connections import Connections
from rota.store.query import Query, Row, encoded

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor

# What every connection of ours relies on, whatever the role's defaults are.
_SESSION = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "10s",
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

CONNECT_TIMEOUT = 10


class Database:
    """Runs queries. Opens nothing until the first one; belongs to one event loop."""

    def __init__(self, dsn: str, settings: Settings) -> None:
        self.dsn = dsn
        self.schema = settings.schema
        self.settings = settings
        self._connections = Connections(
            self.connect, settings.connections, patience=settings.patience
        )

    async def connect(self, *, engine: bool = False) -> AsyncConnection[Any]:
        """A connection of one's own. `engine`: for the loop that claims and completes."""
        from psycopg import AsyncConnection
        from psycopg.types.json import set_json_loads

        try:
            connection = await AsyncConnection.connect(
                self.dsn,
                autocommit=True,
                prepare_threshold=0 if self.settings.prepare else None,
                connect_timeout=CONNECT_TIMEOUT,
                client_encoding="utf8",
                fallback_application_name="rota",
            )
        except Exception as error:
            raise failures.unconnected(error) from error
        settings = {
            **_SESSION,
            "statement_timeout": f"{int(self.settings.statement_timeout * 1000)}ms",
            **(_ENGINE if engine else {}),
        }
        # JSON stays the bytes it is: the codec decodes it once, into the type that is wanted.
        set_json_loads(_raw, connection)
        cursor = connection.cursor()
        await cursor.execute(
            b"select set_config(name, value, false) from unnest(%s::text[], %s::text[]) s (name, value)",
            (list(settings), list(settings.values())),
            prepare=False,
        )
        return connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection for a moment; errors a user can act on are said in our words."""
        with failures.in_our_words(self.schema):
            async with self._connections.lend() as connection:
                yield connection

    async def run(self, query: Query[Row]) -> list[Row]:
        """Run one query on a connection of ours."""
        with failures.in_our_words(self.schema):
            connection = await self._connections.take()
            try:
                return await run(connection, query, self.schema)
            finally:
                await self._connections.give_back(connection)

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
        deadline = time.monotonic() + (self.settings.patience if patience is None else patience)
        pause = 0.05
        while True:
            try:
                if len(queries) == 1:
                    return [await self.run(queries[0])]
                async with self.connection() as connection:
                    return (await exchange(connection, [queries], self.schema))[0]
            except Exception as error:
                if not failures.is_passing(error):
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


def _raw(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


async def run(connection: AsyncConnection[Any], query: Query[Row], schema: str) -> list[Row]:
    """Run one query on this connection."""
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


def _has_rows(cursor: AsyncCursor[Any]) -> bool:
    # Not `cursor.description`, which makes an object for each column to answer.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0
