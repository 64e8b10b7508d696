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

NOON = datetime(2031, 3, 30, 12, tzinfo=UTC)


async def definition(db: AsyncConnection[Any]) -> Any:
    return await (await db.execute("select pg_get_functiondef('rota.clock'::regproc)")).fetchone()


# Clock


async def test_the_clock_stops_moves_and_runs_again(
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


async def test_advancing_a_clock_that_runs_stops_it(rota_harness: Harness) -> None:
    moved = await rota_harness.clock.advance(timedelta(hours=1))

    assert timedelta(minutes=59) < moved - datetime.now(UTC) < timedelta(minutes=61)
    assert await rota_harness.clock.now() == moved


async def test_a_time_without_a_zone_is_refused(rota_harness: Harness) -> None:
    with pytest.raises(ArgumentError, match="no time zone"):
        await rota_harness.clock.set(datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("act", ["set", "advance", "release"])
async def test_the_clock_of_a_database_that_is_not_marked_is_left_alone(
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


async def test_a_worker_that_runs_notices_that_the_clock_has_moved(rota_harness: Harness) -> None:
    @rota_harness.app.task
    async def remind() -> str:
        return "now"

    run = await remind.options(delay=timedelta(days=7)).start()
    async with rota_harness.app.worker():
        await rota_harness.clock.advance(timedelta(days=8))

        assert await run.result(timeout=60) == "now"


# Until idle


async def test_everything_that_can_be_done_is_done(rota_harness: Harness) -> None:
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


async def test_what_sleeps_is_not_waited_for_and_runs_when_it_is_due(rota_harness: Harness) -> None:
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


async def test_what_nobody_here_can_run_is_said_at_once(rota_harness: Harness) -> None:
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


async def test_a_task_the_app_does_not_know_is_named(rota_dsn: str, rota_app: Rota) -> None:
    async with Rota(rota_dsn) as other:
        await other.task(name="unheard_of")(_nothing).start()
    rota_app.task(name="known")(_nothing)

    with pytest.raises(NotIdle, match=r"unheard_of.*\(this app has no task of that name\)"):
        await run_until_idle(rota_app, timeout=60)


async def test_what_is_still_running_is_named_when_time_is_up(rota_harness: Harness) -> None:
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


async def test_events_before_and_after_the_question_are_seen(rota_harness: Harness) -> None:
    task = rota_harness.app.task(name="quick")(_nothing)
    first = await task.start()
    await rota_harness.run_until_idle()
    assert (await rota_harness.wait_for_event(JobFinished, job=first.id)).state == "succeeded"

    async with rota_harness.app.worker():
        second = await task.start()
        seen = await rota_harness.wait_for_event(JobFinished, job=second.id)

    assert (seen.task, seen.attempt) == ("quick", 1)
    assert any(isinstance(event, WorkerStarted) for event in rota_harness.events)


async def test_what_was_not_seen_is_told_with_what_was(rota_harness: Harness) -> None:
    run = await rota_harness.app.task(name="quick")(_nothing).start()
    await rota_harness.run_until_idle()

    with pytest.raises(
        EventNotSeen, match=rf"no JobRetried\(job={run.id}\) within 0.05 s(.|\n)*JobFinished"
    ):
        await rota_harness.wait_for_event(JobRetried, job=run.id, timeout=0.05)


async def test_a_field_the_event_has_not_got_is_a_mistake_said_at_once(rota_app: Rota) -> None:
    with pytest.raises(ArgumentError, match="JobFinished has no field 'jop'"):
        await EventRecorder(rota_app).wait_for_event(JobFinished, jop=3)


async def test_a_witness_that_is_closed_sees_nothing_more(rota_app: Rota) -> None:
    witness = EventRecorder(rota_app)
    witness.close()
    rota_app.task(name="quick")(_nothing)

    await run_until_idle(rota_app)

    assert witness.events == []


# The user's own app


async def test_an_app_is_put_in_another_database_for_as_long_as_the_block_lasts(
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

    assert app._dsn == "postgresql://nowhere.invalid/production"


async def test_an_app_that_is_open_is_not_moved(
    rota_server: DatabaseServer, rota_app: Rota
) -> None:
    await rota_app.open()

    with pytest.raises(RotaError, match="close it before"):
        async with Harness(rota_app, rota_server.dsn):
            pytest.fail("it was moved")


# Databases


def test_each_test_gets_a_database_of_its_own(rota_server: DatabaseServer) -> None:
    with rota_server.database() as one, rota_server.database() as two:
        assert one != two
        with psycopg.connect(one) as mine, psycopg.connect(two) as other:
            mine.execute("insert into rota.cancels values (1)")
            mine.commit()
            assert other.execute("select count(*) from rota.cancels").fetchone() == (0,)

    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(one)


def test_a_database_is_dropped_although_somebody_is_connected(rota_server: DatabaseServer) -> None:
    with rota_server.database() as dsn:
        left_open = psycopg.connect(dsn)
    try:
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("select 1")
    finally:
        left_open.close()


def test_what_a_killed_session_left_behind_is_dropped_and_nothing_else(
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
def test_a_dsn_is_pointed_at_another_database(dsn: str, expected: str) -> None:
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


@pytest.mark.parametrize("mode", ["strict", "auto, two processes"])
def test_the_plugin_works_in_a_project_of_somebody_elses(
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
