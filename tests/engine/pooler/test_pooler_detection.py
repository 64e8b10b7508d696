"""A pooler is detected, and Rota neither depends on session state nor leaves any behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import KeyBusy, Rota
from rota.model.settings import Settings
from rota.store import jobs
from rota.store.connection import PgConnection
from rota.store.database import Database, pipeline, run
from rota.store.jobs import StartJob
from rota.store.query import Query
from rota.store.read import runs
from rota.testing.server import DatabaseServer
from support.pgbouncer import PgBouncer, run_pgbouncer
from support.role_settings import SAID, SAID_BY_ENGINES, change


@pytest.fixture(scope="module")
def pooler(rota_server: DatabaseServer) -> Iterator[PgBouncer]:
    with run_pgbouncer(rota_server.dsn, shared=2) as started:
        yield started


@pytest.fixture
def pooled_dsn(pooler: PgBouncer, direct_dsn: str) -> str:
    return pooler.before(direct_dsn)


@pytest.fixture
async def database(pooled_dsn: str) -> AsyncIterator[Database]:
    opened = Database(pooled_dsn, Settings(outage_timeout=0.5))
    yield opened
    await opened.close()


def job(**more: Any) -> StartJob:
    return StartJob(task="work", args='{"text": "it\'s \\\\ 100%"}', queue="default", **more)


async def test_pooler_is_detected(database: Database, direct_dsn: str) -> None:
    async with await database.connect() as through:
        assert through.pooled
    async with await Database(direct_dsn, Settings()).connect() as direct:
        assert not direct.pooled


async def test_pooler_direct_dsn_bypasses_the_pooler(pooled_dsn: str, direct_dsn: str) -> None:
    database = Database(pooled_dsn, Settings(), direct_dsn)
    async with await database.connect(direct=True) as direct, await database.connect() as through:
        assert not direct.pooled
        assert through.pooled


@pytest.mark.parametrize(("said", "pooled"), [("yes", True), ("no", False)])
async def test_pooler_setting_overrides_detection(direct_dsn: str, said: str, pooled: bool) -> None:
    async with await Database(direct_dsn, Settings(pooler=said)).connect() as connection:
        assert connection.pooled is pooled
        assert await run(connection, runs.state_counts(), "rota")


@pytest.mark.parametrize("engine", [False, True], ids=["a client's", "a worker's"])
async def test_pooler_every_transaction_applies_its_settings(
    db: AsyncConnection[Any], database: Database, engine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    relied_on = SAID | (SAID_BY_ENGINES if engine else {})
    contrary = {name: contrary for name, (_, contrary) in relied_on.items()}
    # This timeout applies from `begin` until the transaction sets its own.
    await change(db, contrary | {"idle_in_transaction_session_timeout": "5s"})
    wanted = {name: said for name, (said, _) in relied_on.items()}
    shown = "select name, current_setting(name) from unnest(%(names)s::text[]) as name"
    monkeypatch.setattr("rota.store.database.encoded", lambda statement, schema: shown.encode())
    query = Query("shown", {"names": list(wanted)}, lambda name, value: (name, value))

    async with await database.connect(engine=engine) as connection:
        assert dict(await run(connection, query, "rota")) == wanted
        [[first], [second]] = await pipeline(connection, [[query], [query]], "rota")
        assert dict(first) == dict(second) == wanted
        async with connection.transaction():
            assert dict(await run(connection, query, "rota")) == wanted


async def test_pooler_session_settings_stay_unchanged(
    pooler: PgBouncer, pooled_dsn: str, database: Database
) -> None:
    """Other clients may share these connections and depend on their search path."""
    shown = ["search_path", "enable_seqscan", "lock_timeout", "default_transaction_isolation"]
    asked = "select array_agg(current_setting(name)) from unnest(%s::text[]) as name"
    plain = {"autocommit": True, "prepare_threshold": None}
    async with await AsyncConnection.connect(pooled_dsn, **plain) as other:  # type: ignore[arg-type]
        before = await (await other.execute(asked, (shown,))).fetchall()
        for _ in range(4):
            connection = await database.connect(engine=True)
            await run(connection, jobs.start(job(), notify=True), "rota")
            async with connection.transaction():
                await run(connection, jobs.reserve_ids(1), "rota")
            await connection.close()
            assert await (await other.execute(asked, (shown,))).fetchall() == before


async def test_pooler_idle_sessions_hold_no_connection(database: Database) -> None:
    """Ten sessions share two connections; each holds one only for the length of a transaction."""
    sessions = [await database.connect(engine=True) for _ in range(10)]
    segments: list[list[Query[Any]]] = [
        [jobs.start(job(), notify=True), jobs.reserve_ids(1)],
        [runs.state_counts()],
    ]

    async def transaction(session: PgConnection) -> None:
        async with session.transaction():
            await pipeline(session, segments, "rota")

    async with asyncio.timeout(60):
        # One kind after the other: each must release its connection by itself.
        for _ in range(2):
            for session in sessions:
                await pipeline(session, segments, "rota")
        for session in sessions:
            await pipeline(session, segments[1:], "rota")
        for session in sessions:
            await transaction(session)
    for session in sessions:
        await session.close()


async def test_pooler_pipeline_error_keeps_earlier_commits_and_session(
    database: Database, db: AsyncConnection[Any]
) -> None:
    broken = jobs.start(
        StartJob(task="work", args="this is not JSON", queue="default"), notify=False
    )
    async with await database.connect() as session:
        with pytest.raises(psycopg.DataError):
            await pipeline(
                session,
                [[jobs.start(job(), notify=False)], [broken], [jobs.start(job(), notify=False)]],
                "rota",
            )
        assert session.is_idle
        assert await (await db.execute("select count(*) from rota.jobs")).fetchone() == (1,)
        assert await run(session, runs.state_counts(), "rota")


async def test_pooler_values_are_stored_unchanged(database: Database) -> None:
    """Values sent as literals in the text take another code path than parameters."""
    at = datetime(2031, 3, 29, 1, 30, 0, 250000, tzinfo=UTC)
    [started] = await database.run(jobs.start(job(at=at, key="it's \\ %s"), notify=False))
    [again] = await database.run(jobs.start(job(at=at, key="it's \\ %s"), notify=False))
    assert (started.created, again) == (True, jobs.StartedJob(started.run, False))
    async with database.connection() as connection:
        cursor = await connection.execute(
            "select jobs.args->>'text', sleeping.wake_at from rota.jobs join rota.sleeping on job = id"
        )
        assert await cursor.fetchall() == [("it's \\ 100%", at)]


async def test_pooler_times_are_read_independently_of_session_settings(
    db: AsyncConnection[Any], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings end with the transaction, before its answer is read."""
    await change(db, {"datestyle": "German, DMY", "timezone": "Pacific/Apia"})
    text = b"select %(at)s::timestamptz, array[%(at)s::timestamptz, null]"
    monkeypatch.setattr("rota.store.database.encoded", lambda statement, schema: text)
    at = datetime(2031, 3, 29, 1, 30, 0, 250000, tzinfo=UTC)
    query = Query("asked", {"at": at}, lambda *row: row)

    assert await database.run(query) == [(at, [at, None])]


async def test_pooler_key_in_open_transaction_is_busy(database: Database, direct_dsn: str) -> None:
    """The server's own default would wait for ever."""
    async with await Database(direct_dsn, Settings()).connect() as other, other.transaction():
        await run(other, jobs.start(job(key="k"), notify=False), "rota")
        with pytest.raises(KeyBusy):
            await database.run(jobs.start(job(key="k"), notify=False))
    assert await database.run(jobs.start(job(key="k"), notify=False))


async def test_pooler_app_logs_polling_once(
    pooled_dsn: str, db: AsyncConnection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rota")
    async with Rota(pooled_dsn, poll_interval=0.05) as app:

        @app.task
        async def double(n: int) -> int:
            return 2 * n

        async with app.worker():
            for n in range(3):
                assert await (await double.start(n=n)).result(timeout=60) == 2 * n
            client = await app.open()
            assert client.listener.unavailable
            listening = await db.execute(
                "select count(*) from pg_stat_activity where query ilike 'listen %'"
            )
            assert await listening.fetchone() == (0,)

    said = [record.getMessage() for record in caplog.records if "pooler" in record.getMessage()]
    assert [text.split(":")[0] for text in said] == [
        "connected through a pooler, so notifications are not received"
    ]


async def test_pooler_app_with_direct_dsn_receives_notifications(
    pooled_dsn: str, direct_dsn: str
) -> None:
    async with Rota(pooled_dsn, direct=direct_dsn, poll_interval=60) as app:

        @app.task
        async def double(n: int) -> int:
            return 2 * n

        async with app.worker():
            for n in range(3):
                assert await (await double.start(n=n)).result(timeout=60) == 2 * n
