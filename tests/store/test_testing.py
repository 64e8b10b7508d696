"""`rota.testing`, as users' tests use it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Retry, Rota
from rota.errors import ArgumentError, RotaError
from rota.model.events import JobClaimed, JobFinished, JobRetried, WorkerStarted
from rota.testing import (
    EventNotSeen,
    EventRecorder,
    Harness,
    NotIdle,
    NotThrowaway,
    SettableClock,
    run_until_idle,
    until_idle,
)
from rota.testing.server import DatabaseServer, with_database
from support.scale import scale

NOON = datetime(2031, 3, 30, 12, tzinfo=UTC)


async def definition(db: AsyncConnection[Any]) -> Any:
    return await (await db.execute("select pg_get_functiondef('rota.clock'::regproc)")).fetchone()


# Clock


async def test_clock_can_be_set_advanced_and_resumed(
    rota_harness: Harness, db: AsyncConnection[Any]
) -> None:
    clock = rota_harness.clock
    before = await definition(db)

    await clock.set(NOON)
    assert (await clock.now(), await clock.now()) == (NOON, NOON)
    assert await clock.advance(timedelta(days=7)) == NOON + timedelta(days=7)
    assert await SettableClock(rota_harness.app).now() == NOON + timedelta(days=7)

    await clock.resume()
    assert abs(datetime.now(UTC) - await clock.now()) < timedelta(minutes=1)
    assert await definition(db) == before


async def test_clock_advance_while_running_stops_the_clock(rota_harness: Harness) -> None:
    moved = await rota_harness.clock.advance(timedelta(hours=1))

    assert timedelta(minutes=59) < moved - datetime.now(UTC) < timedelta(minutes=61)
    assert await rota_harness.clock.now() == moved


async def test_clock_set_without_time_zone_raises(rota_harness: Harness) -> None:
    with pytest.raises(ArgumentError, match="no time zone"):
        await rota_harness.clock.set(datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("act", ["set", "advance", "release"])
async def test_clock_of_unmarked_database_is_not_changed(
    rota_harness: Harness, db: AsyncConnection[Any], act: str
) -> None:
    await db.execute("drop schema rota_throwaway cascade")
    before = await definition(db)
    clock = rota_harness.clock
    actions: dict[str, Callable[[], Awaitable[object]]] = {
        "set": lambda: clock.set(NOON),
        "advance": lambda: clock.advance(timedelta(1)),
        "release": clock.resume,
    }

    with pytest.raises(NotThrowaway, match="it is not marked as a test database"):
        await actions[act]()

    assert await definition(db) == before


async def test_clock_advance_wakes_a_running_worker(rota_harness: Harness) -> None:
    @rota_harness.app.task
    async def remind() -> str:
        return "now"

    run = await remind.options(delay=timedelta(days=7)).start()
    async with rota_harness.app.worker():
        await rota_harness.clock.advance(timedelta(days=8))

        assert await run.result(timeout=60) == "now"


# Until idle


async def test_run_until_idle_runs_jobs_started_by_jobs(rota_harness: Harness) -> None:
    app = rota_harness.app
    seen: list[int] = []

    @app.task
    async def count_down(n: int) -> None:
        seen.append(n)
        if n:
            await count_down.start(n - 1)

    await count_down.start(5)
    await rota_harness.run_until_idle()

    assert seen == [5, 4, 3, 2, 1, 0]


async def test_run_until_idle_leaves_sleeping_jobs_until_due(rota_harness: Harness) -> None:
    tries: list[int] = []

    @rota_harness.app.task(retry=Retry(max_attempts=3, delay=3600))
    async def fragile() -> None:
        tries.append(1)
        raise ValueError

    run = await fragile.start()
    for attempt in (1, 2, 3):
        await rota_harness.run_until_idle()
        assert len(tries) == attempt
        await rota_harness.clock.advance(timedelta(days=1))

    assert await run.status() == "failed"


async def test_run_until_idle_unserved_queue_raises_not_idle(rota_harness: Harness) -> None:
    app = rota_harness.app
    resize = app.task(name="resize")(_nothing)
    elsewhere = await resize.options(queue="elsewhere").start()

    with pytest.raises(
        NotIdle,
        match=rf"1 queued: resize in queue elsewhere, such as job {elsewhere.id} "
        r"\(this worker does not serve that queue\)",
    ):
        await run_until_idle(app, timeout=60)

    await run_until_idle(app, queues=["elsewhere"])
    assert await elsewhere.status() == "succeeded"


async def test_run_until_idle_unknown_task_raises_not_idle(rota_dsn: str, rota_app: Rota) -> None:
    async with Rota(rota_dsn) as other:
        await other.task(name="unheard_of")(_nothing).start()
    rota_app.task(name="known")(_nothing)

    with pytest.raises(NotIdle, match=r"unheard_of.*\(this app has no task of that name\)"):
        await run_until_idle(rota_app, timeout=60)


async def test_until_idle_timeout_names_running_jobs(rota_harness: Harness) -> None:
    stop = asyncio.Event()

    @rota_harness.app.task
    async def endless() -> None:
        await stop.wait()

    await endless.start()
    async with rota_harness.app.worker():
        await rota_harness.wait_for_event(JobClaimed)
        with pytest.raises(NotIdle, match="1 running: endless in queue default"):
            await until_idle(rota_harness.app, timeout=0.2)
        stop.set()
        await until_idle(rota_harness.app)


# Events


async def test_wait_for_event_finds_past_and_future_events(rota_harness: Harness) -> None:
    task = rota_harness.app.task(name="quick")(_nothing)
    first = await task.start()
    await rota_harness.run_until_idle()
    assert (await rota_harness.wait_for_event(JobFinished, job=first.id)).state == "succeeded"

    async with rota_harness.app.worker():
        second = await task.start()
        seen = await rota_harness.wait_for_event(JobFinished, job=second.id)

    assert (seen.task, seen.attempt) == ("quick", 1)
    assert any(isinstance(event, WorkerStarted) for event in rota_harness.events)


async def test_wait_for_event_timeout_lists_recorded_events(rota_harness: Harness) -> None:
    run = await rota_harness.app.task(name="quick")(_nothing).start()
    await rota_harness.run_until_idle()

    with pytest.raises(
        EventNotSeen, match=rf"no JobRetried\(job={run.id}\) within 0.05 s(.|\n)*JobFinished"
    ):
        await rota_harness.wait_for_event(JobRetried, job=run.id, timeout=0.05)


async def test_wait_for_event_unknown_field_raises(rota_app: Rota) -> None:
    with pytest.raises(ArgumentError, match="JobFinished has no field 'jop'"):
        await EventRecorder(rota_app).wait_for_event(JobFinished, jop=3)


async def test_event_recorder_closed_records_nothing(rota_app: Rota) -> None:
    witness = EventRecorder(rota_app)
    witness.close()
    rota_app.task(name="quick")(_nothing)

    await run_until_idle(rota_app)

    assert witness.events == []


# The user's own app


async def test_harness_moves_app_to_database_for_the_block(
    rota_server: DatabaseServer, rota_dsn: str
) -> None:
    app = Rota("postgresql://nowhere.invalid/production")
    task = app.task(name="quick")(_nothing)
    for _ in range(2):
        with rota_server.database() as dsn:
            async with Harness(app, dsn) as harness:
                run = await task.start()
                await harness.run_until_idle()
                assert (run.id, await run.status()) == (1, "succeeded")

    assert app.database.dsn == "postgresql://nowhere.invalid/production"


async def test_harness_open_app_raises(rota_server: DatabaseServer, rota_app: Rota) -> None:
    await rota_app.open()

    with pytest.raises(RotaError, match="close it before"):
        async with Harness(rota_app, rota_server.dsn):
            pytest.fail("it was moved")


# Databases


def test_database_of_each_test_is_separate(rota_server: DatabaseServer) -> None:
    with rota_server.database() as one, rota_server.database() as two:
        assert one != two
        with psycopg.connect(one) as mine, psycopg.connect(two) as other:
            mine.execute("insert into rota.cancels values (1)")
            mine.commit()
            assert other.execute("select count(*) from rota.cancels").fetchone() == (0,)

    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(one)


def test_database_with_open_connection_is_dropped(rota_server: DatabaseServer) -> None:
    with rota_server.database() as dsn:
        left_open = psycopg.connect(dsn)
    try:
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("select 1")
    finally:
        left_open.close()


def test_database_left_by_killed_session_is_dropped(
    rota_server: DatabaseServer,
) -> None:
    def names() -> set[str]:
        with psycopg.connect(rota_server.dsn) as connection:
            return {row[0] for row in connection.execute("select datname from pg_database")}

    with psycopg.connect(rota_server.dsn, autocommit=True) as connection:
        connection.execute("create database rota_test_0123456789_1")
    with rota_server.database() as dsn:
        before = names()
        assert "rota_test_0123456789_1" in before

        with DatabaseServer.connect(rota_server.dsn):
            assert names() == before - {"rota_test_0123456789_1"}

        psycopg.connect(dsn).close()


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgresql://u:p@h:1/old", "postgresql://u:p@h:1/new"),
        ("postgresql:///old?host=/tmp/x&user=u", "postgresql:///new?host=/tmp/x&user=u"),
        ("postgres://u@/old?host=/s&port=5", "postgres://u@/new?host=/s&port=5"),
        ("postgresql://h?dbname=old&sslmode=require", "postgresql://h/new?sslmode=require"),
        ("postgresql://h", "postgresql://h/new"),
        ("dbname=old", "dbname=new"),
    ],
)
def test_with_database_replaces_name_in_dsn(dsn: str, expected: str) -> None:
    assert with_database(dsn, "new") == expected
    assert psycopg.conninfo.conninfo_to_dict(with_database(dsn, "new"))["dbname"] == "new"


# Another project


PROJECT = """
import pytest
from rota import Rota

app = Rota()

@app.task
async def double(n: int) -> int:
    return 2 * n

{mark}
async def test_with_the_apps_own_tasks(rota_dsn):
    from rota.testing import Harness
    async with Harness(app, rota_dsn) as harness:
        run = await double.start(4)
        await harness.run_until_idle()
        assert await run.result() == 8

{mark}
async def test_with_a_harness(rota_harness):
    task = rota_harness.app.task(double.fn)
    run = await task.start(5)
    await rota_harness.run_until_idle()
    assert await run.result() == 10

def test_without_a_loop(rota_dsn):
    assert "rota_test_" in rota_dsn
"""


@pytest.mark.parametrize("mode", scale(["strict"], ["strict", "auto, two processes"]))
def test_plugin_works_in_another_project(
    rota_server: DatabaseServer, tmp_path: Path, mode: str
) -> None:
    strict = mode == "strict"
    (tmp_path / "test_app.py").write_text(
        PROJECT.format(mark="@pytest.mark.asyncio" if strict else "")
    )
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = {'strict' if strict else 'auto'}\n"
        "asyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(["-n", "2"] if "two" in mode else [])],
        cwd=tmp_path,
        env={**os.environ, "ROTA_TEST_DATABASE_URL": rota_server.dsn},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


async def _nothing() -> None:
    return None
