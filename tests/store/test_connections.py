"""The few connections a program has: opened when needed, used again, never lent broken."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from psycopg import AsyncConnection

from rota.errors import DatabaseError, DatabaseUnavailable, SchemaMissing
from rota.model.settings import Settings
from rota.store import jobs, views
from rota.store.database import Database
from rota.testing.server import Server, with_database


@pytest.fixture
async def database(store_dsn: str) -> AsyncIterator[Database]:
    opened = Database(store_dsn, Settings(connections=3, patience=0.3))
    yield opened
    await opened.close()


async def pid(database: Database) -> int:
    async with database.connection() as connection:
        return connection.info.backend_pid


async def test_a_connection_is_used_again(database: Database) -> None:
    assert await pid(database) == await pid(database)


async def test_no_more_are_open_than_allowed_and_who_waits_too_long_is_told(
    database: Database,
) -> None:
    async with database.connection(), database.connection(), database.connection():
        with pytest.raises(DatabaseUnavailable, match=r"all 3 connections were busy for 0\.3 s"):
            await database.run(views.places())

    assert await database.run(views.places())


async def test_who_waits_for_a_place_gets_the_one_that_becomes_free(database: Database) -> None:
    async with database.connection(), database.connection():
        async with database.connection() as third:
            waiting = asyncio.create_task(pid(database))
            await asyncio.sleep(0)
        assert await waiting == third.info.backend_pid


async def test_a_connection_the_server_has_closed_is_not_lent_again(
    database: Database, store_dsn: str
) -> None:
    before = await pid(database)
    async with await AsyncConnection.connect(store_dsn, autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s, 5000)", (before,))
    await asyncio.sleep(0.06)  # a connection just used is trusted for a moment

    assert await pid(database) != before


async def test_a_connection_left_in_a_transaction_is_closed(database: Database) -> None:
    async with database.connection() as connection:
        before = connection.info.backend_pid
        await connection.execute("begin")

    assert await pid(database) != before


async def test_a_program_with_many_files_open_can_use_its_connections_again(
    database: Database,
) -> None:
    """A busy web server has thousands of sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    async with AsyncExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        async with database.connection() as connection:
            opened.push_async_callback(connection.close)
        await asyncio.sleep(0.06)

        assert await pid(database) == connection.info.backend_pid


async def test_a_failed_query_costs_no_place(database: Database) -> None:
    missing = Database(database.dsn, Settings(schema="nowhere", connections=1, patience=0.3))
    try:
        for _ in range(3):
            with pytest.raises(SchemaMissing, match="schema 'nowhere'"):
                await missing.run(jobs.reserve(1))
    finally:
        await missing.close()


async def test_a_database_that_is_not_there_is_said_at_once(rota_server: Server) -> None:
    """Insisting on it would only take longer to say the same."""
    nowhere = Database(with_database(rota_server.dsn, "rota_test_nowhere"), Settings(patience=30))

    async with asyncio.timeout(5):
        with pytest.raises(DatabaseError, match="does not exist; check ROTA_DATABASE_URL"):
            await nowhere.insist(views.places())


async def test_a_server_that_is_away_is_insisted_on_for_a_while(tmp_path: object) -> None:
    away = Database(f"postgresql:///x?host={tmp_path}", Settings(patience=0.3))

    with pytest.raises(DatabaseUnavailable, match="did not answer in time: cannot reach"):
        await away.insist(views.places())
