"""The clock of a throwaway database: stop it, move it, let it go.

Only the database's clock decides what is due, and it is one SQL function, `rota.clock()`. Setting the
time puts another function in its place, for every connection at once. That would be the end of a real
database, so it is refused in one that is not marked: databases made by `rota.testing` are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rota.errors import ArgumentError, RotaError

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from rota.app import Rota

MARK = "rota_throwaway"
"""A schema of this name marks a database whose clock may be set."""

_REAL = "select statement_timestamp()"


class NotThrowaway(RotaError):
    """This database is not one that tests may break."""


class Clock:
    """The time as an app's database sees it. Until it is set, it is the server's own."""

    def __init__(self, app: Rota) -> None:
        self._app = app

    async def now(self) -> datetime:
        async with self._connection() as connection:
            return await self._read(connection)

    async def set(self, now: datetime) -> None:
        """Stop the clock at this time."""
        if now.tzinfo is None:
            raise ArgumentError(
                f"{now.isoformat()} has no time zone; use one, such as timezone.utc"
            )
        async with self._connection() as connection:
            await self._replace(connection, now)

    async def advance(self, by: timedelta) -> datetime:
        """Move the clock, and stop it there if it was running. Answers the new time."""
        async with self._connection() as connection:
            now = await self._read(connection) + by
            await self._replace(connection, now)
        return now

    async def release(self) -> None:
        """Let the clock run again, at the server's time."""
        async with self._connection() as connection:
            await self._replace(connection, None)

    async def _read(self, connection: AsyncConnection[Any]) -> datetime:
        from psycopg import sql

        ask = sql.SQL("select {}.clock()").format(sql.Identifier(self._app.settings.schema))
        row = await (await connection.execute(ask)).fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    async def _replace(self, connection: AsyncConnection[Any], now: datetime | None) -> None:
        from psycopg import sql

        schema = self._app.settings.schema
        if now is None:
            body: sql.Composable = sql.SQL(_REAL)
        else:
            body = sql.SQL("select {}::timestamptz").format(sql.Literal(now.isoformat()))
        marked = await connection.execute("select to_regnamespace(%s) is not null", (MARK,))
        if await marked.fetchone() != (True,):
            raise NotThrowaway(
                f"the clock of database {connection.info.dbname!r} is not set: nothing says that it "
                f"may be thrown away. Use the fixture rota_dsn, or `create schema {MARK}` in a "
                "database that holds nothing of value"
            )
        await connection.execute(
            sql.SQL(
                "create or replace function {}.clock() returns timestamptz "
                "language sql stable parallel safe as {}"
            ).format(sql.Identifier(schema), sql.Literal(body.as_string(connection)))
        )
        # Workers that are asleep until a time by their own watch look again.
        await connection.execute("select pg_notify(%s, '!clock')", (f"{schema}.wake",))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        client = await self._app.open()
        async with client.database.connection() as connection:
            yield connection
