"""The connections of a process: opened on demand, reused, never handed out broken."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from psycopg import AsyncConnection
from psycopg.errors import InternalError_

from rota.errors import DatabaseError, DatabaseUnavailable, SchemaMissing, StatementRefused
from rota.model.settings import Settings
from rota.store import jobs
from rota.store.database import Database
from rota.store.read import runs
from rota.testing.proxy.proxy import Proxy
from rota.testing.server import DatabaseServer, with_database

RAISE = "do $$ begin raise exception 'injected' using errcode = 'CODE'; end $$"


@pytest.fixture
async def database(store_dsn: str) -> AsyncIterator[Database]:
    opened = Database(store_dsn, Settings(connections=3, outage_timeout=0.3))
    yield opened
    await opened.close()


async def pid(database: Database) -> int:
    async with database.connection() as connection:
        return connection.info.backend_pid


async def test_pool_reuses_a_released_connection(database: Database) -> None:
    assert await pid(database) == await pid(database)


async def test_pool_exhausted_raises_after_outage_timeout(
    database: Database,
) -> None:
    async with database.connection(), database.connection(), database.connection():
        with pytest.raises(DatabaseUnavailable, match=r"all 3 connections were busy for 0\.3 s"):
            await database.run(runs.state_counts())

    assert await database.run(runs.state_counts())


async def test_pool_waiting_caller_gets_the_next_free_connection(database: Database) -> None:
    async with database.connection(), database.connection():
        async with database.connection() as third:
            waiting = asyncio.create_task(pid(database))
            await asyncio.sleep(0)
        assert await waiting == third.info.backend_pid


async def test_pool_discards_connection_closed_by_server(
    database: Database, store_dsn: str
) -> None:
    before = await pid(database)
    async with await AsyncConnection.connect(store_dsn, autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s, 5000)", (before,))

    assert await pid(database) != before


async def test_pool_closes_connection_left_in_transaction(database: Database) -> None:
    async with database.connection() as connection:
        before = connection.info.backend_pid
        await connection.execute("begin")

    assert await pid(database) != before


async def test_pool_reuses_connection_with_high_descriptor_number(
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
        assert await pid(database) == connection.info.backend_pid


async def test_pool_failed_query_frees_its_connection(database: Database) -> None:
    missing = Database(database.dsn, Settings(schema="nowhere", connections=1, outage_timeout=0.3))
    try:
        for _ in range(3):
            with pytest.raises(SchemaMissing, match="schema 'nowhere'"):
                await missing.run(jobs.reserve_ids(1))
    finally:
        await missing.close()


async def test_connect_missing_database_raises_at_once(rota_server: DatabaseServer) -> None:
    """A retry would fail with the same error, only later."""
    nowhere = Database(
        with_database(rota_server.dsn, "rota_test_nowhere"), Settings(outage_timeout=30)
    )

    async with asyncio.timeout(60):
        with pytest.raises(DatabaseError, match="does not exist; check ROTA_DATABASE_URL"):
            await nowhere.run_with_retry(runs.state_counts())


async def test_run_with_retry_unreachable_server_raises_after_timeout(tmp_path: object) -> None:
    away = Database(f"postgresql:///x?host={tmp_path}", Settings(outage_timeout=0.3))

    with pytest.raises(DatabaseUnavailable, match="did not answer in time: cannot reach"):
        await away.run_with_retry(runs.state_counts())


# Broken connections


async def test_query_silent_server_times_out_and_next_call_succeeds(
    store_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silently lost connection gives no error; the kernel would wait for minutes."""
    monkeypatch.setattr("rota.store.database.ANSWER_GRACE_SECONDS", 0.2)
    with Proxy(store_dsn) as proxy:
        database = Database(proxy.dsn, Settings(statement_timeout=3.0))
        try:
            assert await database.run(runs.state_counts())
            proxy.drop()
            async with asyncio.timeout(60):
                with pytest.raises(DatabaseUnavailable, match=r"no answer in 3\.2 s"):
                    await database.run(runs.state_counts())
            proxy.heal()
            assert await database.run(runs.state_counts())
        finally:
            await database.close()


async def test_connect_silent_server_times_out(store_dsn: str) -> None:
    with Proxy(store_dsn) as proxy:
        proxy.hold()
        database = Database(f"{proxy.dsn} connect_timeout=2", Settings())
        async with asyncio.timeout(60):
            with pytest.raises(DatabaseUnavailable, match="timeout expired"):
                await database.run(runs.state_counts())


async def test_pool_closes_connection_of_cancelled_query(
    database: Database, store_dsn: str
) -> None:
    """The answer to the interrupted statement may still arrive on it."""
    before = await pid(database)

    async def sleep() -> None:
        async with database.connection() as connection:
            await connection.execute("select pg_sleep(60)")

    sleeping = asyncio.create_task(sleep())
    async with await AsyncConnection.connect(store_dsn, autocommit=True) as other:
        asked = "select count(*) from pg_stat_activity where query ~ '^select pg_sleep'"
        while await (await other.execute(asked)).fetchone() != (1,):
            await asyncio.sleep(0.01)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping

    assert await pid(database) != before


async def test_pool_read_only_server_replaces_all_connections(database: Database) -> None:
    """After a failover the old primary may still be there, as a standby."""
    async with database.connection() as one, database.connection() as two:
        before = {one.info.backend_pid, two.info.backend_pid}
    with pytest.raises(DatabaseUnavailable, match=r"cannot do this now.*read-only"):
        async with database.connection() as connection:
            await connection.execute("begin read only; create table impossible ()", prepare=False)

    async with database.connection() as one, database.connection() as two:
        assert not before & {one.info.backend_pid, two.info.backend_pid}


async def test_query_lost_answer_raises_database_unavailable(database: Database) -> None:
    with pytest.raises(
        DatabaseUnavailable, match="lost before the answer came: terminating"
    ) as lost:
        async with database.connection() as connection:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
    assert lost.value.may_be_done


async def test_retry_transaction_with_lost_answer_is_not_repeated(database: Database) -> None:
    calls = 0

    async def transact() -> None:
        nonlocal calls
        calls += 1
        async with database.transaction() as connection:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(DatabaseUnavailable, match="lost before the answer came"):
        await database.retry(transact, outage_timeout=3600)
    assert calls == 1


@pytest.mark.parametrize("code", ["53100", "55P03", "40001"])
async def test_retry_transaction_rolled_back_by_server_is_repeated(
    database: Database, code: str
) -> None:
    calls = 0

    async def transact() -> int:
        nonlocal calls
        calls += 1
        async with database.transaction() as connection:
            if calls < 3:
                await connection.execute(RAISE.replace("CODE", code).encode())
        return calls

    assert await database.retry(transact, outage_timeout=3600) == 3


async def test_statement_refused_by_server_raises_database_error(database: Database) -> None:
    with pytest.raises(
        StatementRefused, match=r"refused the statement: injected \(SQLSTATE XX000\)"
    ) as refused:
        async with database.connection() as connection:
            await connection.execute(RAISE.replace("CODE", "XX000").encode())
    assert isinstance(refused.value.__cause__, InternalError_)


async def test_pool_exhausted_query_does_not_wait_a_second_time(database: Database) -> None:
    async with database.connection(), database.connection(), database.connection():
        with pytest.raises(DatabaseUnavailable, match="all 3 connections were busy"):
            async with asyncio.timeout(60):
                await database.run(runs.state_counts(), outage_timeout=3600)
