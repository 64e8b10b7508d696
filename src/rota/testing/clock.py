"""Clock of a throwaway database, which tests can stop, move and resume.

Only the database's clock decides when jobs are due, and it is one SQL function, `rota.clock()`. Setting the
time replaces this function, for every connection at once. That would destroy a real database, so it is
refused unless the database is marked as throwaway. Databases created by `rota.testing` are marked.
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

THROWAWAY_SCHEMA = "rota_throwaway"
"""A schema of this name marks a database whose clock may be set."""

# The original definition is kept beside the mark, so that resume() restores it exactly.
_CREATE_SAVED_CLOCK = (
    "create table if not exists rota_throwaway.clock (definition text primary key)"
)
_SAVE_CLOCK = """
insert into rota_throwaway.clock
select pg_get_functiondef(%(clock)s::regproc)
 where not exists (select from rota_throwaway.clock)
"""
_TAKE_SAVED_CLOCK = "delete from rota_throwaway.clock returning definition"


class NotThrowaway(RotaError):
    """Raised for a database that is not marked as throwaway."""


class SettableClock:
    """Clock of an app's database. Until it is set, it is the server's clock."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self._schema = app.settings.schema

    async def now(self) -> datetime:
        """Return the current time of the database."""
        async with self._connection() as connection:
            return await self._read(connection)

    async def set(self, now: datetime) -> None:
        """Stop the clock at this time."""
        if now.tzinfo is None:
            raise ArgumentError(
                f"{now.isoformat()} has no time zone; use one, such as timezone.utc"
            )
        async with self._connection() as connection:
            await self._stop(connection, now)

    async def advance(self, by: timedelta) -> datetime:
        """Move the clock, stop it if it was running, and return the new time."""
        async with self._connection() as connection:
            now = await self._read(connection) + by
            await self._stop(connection, now)
        return now

    async def resume(self) -> None:
        """Let the clock run again with the server's time."""
        async with self._connection() as connection:
            await self._check_throwaway(connection)
            for (definition,) in await (await connection.execute(_TAKE_SAVED_CLOCK)).fetchall():
                await connection.execute(definition)
            await self._notify_workers(connection)

    async def _read(self, connection: AsyncConnection[Any]) -> datetime:
        from psycopg import sql

        query = sql.SQL("select {}.clock()").format(sql.Identifier(self._schema))
        row = await (await connection.execute(query)).fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    async def _stop(self, connection: AsyncConnection[Any], now: datetime) -> None:
        from psycopg import sql

        await self._check_throwaway(connection)
        await connection.execute(_SAVE_CLOCK, {"clock": f"{self._schema}.clock"})
        body = sql.SQL("select {}::timestamptz").format(sql.Literal(now.isoformat()))
        await connection.execute(
            sql.SQL(
                "create or replace function {}.clock() returns timestamptz "
                "language sql stable parallel safe as {}"
            ).format(sql.Identifier(self._schema), sql.Literal(body.as_string(connection)))
        )
        await self._notify_workers(connection)

    async def _check_throwaway(self, connection: AsyncConnection[Any]) -> None:
        """Raise NotThrowaway unless the database is marked."""
        found = await connection.execute(
            "select to_regnamespace(%s) is not null", (THROWAWAY_SCHEMA,)
        )
        if await found.fetchone() != (True,):
            raise NotThrowaway(
                f"the clock of database {connection.info.dbname!r} cannot be set: it is not marked as a "
                f"test database. Use the fixture rota_dsn, or `create schema {THROWAWAY_SCHEMA}` in a "
                "database that holds nothing of value"
            )
        await connection.execute(_CREATE_SAVED_CLOCK)

    async def _notify_workers(self, connection: AsyncConnection[Any]) -> None:
        """Wake workers that sleep until a time by their own clock, so that they poll again."""
        await connection.execute("select pg_notify(%s, '!clock')", (f"{self._schema}.wake",))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        client = await self._app.open()
        async with client.database.connection() as connection:
            yield connection
