"""Migration: of many processes at once one migrates, and a failed migration leaves no trace."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from rota.model.events import JobFinished
from rota.model.settings import Settings
from rota.store import migrate as module
from rota.store.database import Database
from rota.store.migrate import applied, check, migrate, migrations
from rota.testing import Harness
from rota.testing.server import DatabaseServer

from .racers import race

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def empty_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.empty_database() as dsn:
        yield dsn


@pytest.fixture
async def empty(empty_dsn: str) -> AsyncIterator[Database]:
    database = Database(empty_dsn, Settings())
    yield database
    await database.close()


async def relations(dsn: str) -> list[Any]:
    """Return all schemas and relations in the database that are not PostgreSQL's own."""
    async with await AsyncConnection.connect(dsn) as connection:
        found = await connection.execute(
            "select 'schema', nspname from pg_namespace"
            " where nspname !~ '^pg_' and nspname not in ('public', 'information_schema')"
            " union all select 'relation', oid::regclass::text from pg_class"
            " where relnamespace::regnamespace::text !~ '^(pg_|information_schema)'"
        )
        return await found.fetchall()


def test_the_golden_dump_is_what_the_migrations_add_up_to(rota_dsn: str) -> None:
    dump = runpy.run_path(str(ROOT / "tools" / "dump_schema.py"))["dump"]
    golden = ROOT / "src" / "rota" / "store" / "schema.sql"

    assert golden.read_text("utf-8") == dump(rota_dsn), "run `make schema` and read what changed"


def test_migrations_are_numbered_without_a_gap_and_say_whether_they_break() -> None:
    assert [each.version for each in migrations()] == [*range(1, len(migrations()) + 1)]
    for each in migrations():
        assert each.text.startswith(("-- breaking: yes\n", "-- breaking: no\n")), each.name


async def test_migrating_twice_does_nothing_the_second_time(empty: Database) -> None:
    assert await migrate(empty) == list(migrations())
    assert await migrate(empty) == []

    await check(empty)
    assert await applied(empty) == {each.version: each.name for each in migrations()}


def test_thirty_two_processes_at_once_all_succeed_and_one_does_it(empty_dsn: str) -> None:
    answers = race(empty_dsn, 32)

    assert [answer.error for answer in answers if answer.error] == []
    assert sorted(answer.applied for answer in answers) == [0] * 31 + [len(migrations())]


async def test_an_empty_database_is_refused_with_what_to_do(empty: Database) -> None:
    with pytest.raises(SchemaMissing, match=r"has no tables of Rota.*rota db migrate"):
        await check(empty)
    assert await applied(empty) == {}


async def test_a_schema_that_is_behind_is_refused_with_what_to_do(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty)
    later = replace(migrations()[0], version=len(migrations()) + 1, name="later", text="select 1")
    monkeypatch.setattr(module, "migrations", lambda: (*migrations(), later))

    with pytest.raises(SchemaTooOld, match=r"1 migration\(s\) behind .*later.*rota db migrate"):
        await check(empty)


@pytest.mark.parametrize("act", [migrate, check], ids=["migrate", "check"])
async def test_a_schema_a_newer_rota_made_is_refused_and_left_alone(
    empty_dsn: str, empty: Database, act: Any
) -> None:
    await migrate(empty)
    async with await AsyncConnection.connect(empty_dsn, autocommit=True) as db:
        await db.execute("insert into rota.migrations (version, name) values (9999, 'tomorrow')")
    before = await relations(empty_dsn)

    with pytest.raises(SchemaTooNew, match=r"migration 9999 \(tomorrow\).*upgrade Rota"):
        await act(empty)

    assert await relations(empty_dsn) == before


async def test_a_worker_refuses_a_schema_a_newer_rota_made(rota_app: Rota, db: Any) -> None:
    rota_app.task(name="anything")(lambda: None)
    await db.execute("insert into rota.migrations (version, name) values (9999, 'tomorrow')")

    with pytest.raises(SchemaTooNew):
        async with rota_app.worker():
            pytest.fail("it started")


async def test_a_migration_that_fails_leaves_nothing_behind(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await relations(empty_dsn)
    broken = replace(migrations()[0], version=2, name="broken", text="create table rota.x (); oops")
    monkeypatch.setattr(module, "migrations", lambda: (migrations()[0], broken))

    with pytest.raises(psycopg.errors.SyntaxError):
        await migrate(empty)

    assert await relations(empty_dsn) == before
    monkeypatch.undo()
    assert await migrate(empty) == list(migrations())


async def test_a_worker_in_the_middle_of_a_tick_and_a_migration_both_come_to_their_end(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migration locks tables in the order in which workers do: ticks, then the runs they start."""
    monkeypatch.setattr(module, "migrations", lambda: migrations()[:7])
    await migrate(empty)
    monkeypatch.undo()
    async with await AsyncConnection.connect(empty_dsn) as worker:
        await worker.execute("set lock_timeout = '0.5s'")  # the worker is never blocked
        await worker.execute("update rota.ticks set at = at where false")
        migrating = asyncio.create_task(migrate(empty))
        await until_somebody_waits(empty_dsn)

        await worker.execute("update rota.runs set id = id where false")
        await worker.execute("update rota.locks set name = name where false")
        await worker.execute("update rota.audit set operator = operator where false")

    assert await migrating == list(migrations()[7:])


async def until_somebody_waits(dsn: str) -> None:
    async with (
        asyncio.timeout(60),
        await AsyncConnection.connect(dsn, autocommit=True) as watch,
    ):
        asked = "select from pg_locks where not granted and relation is not null"
        while await (await watch.execute(asked)).fetchone() is None:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("code", ["40P01", "55P03"], ids=["a deadlock", "a lock timeout"])
async def test_one_that_others_were_in_the_way_of_is_tried_again(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    await thwart(empty_dsn, monkeypatch, code, times=2)

    assert len(await migrate(empty)) == 2
    assert await applied(empty) == {1: migrations()[0].name, 2: "thwarted"}


async def test_one_that_others_are_always_in_the_way_of_is_given_up(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    await thwart(empty_dsn, monkeypatch, "40P01", times=1000)

    with pytest.raises(psycopg.errors.DeadlockDetected):
        await migrate(empty)


async def test_one_that_is_wrong_in_itself_is_not_tried_again(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await thwart(empty_dsn, monkeypatch, "42601", times=1)

    with pytest.raises(psycopg.errors.SyntaxError):
        await migrate(empty)


async def thwart(dsn: str, monkeypatch: pytest.MonkeyPatch, code: str, times: int) -> None:
    """Install a migration that fails this many times. A sequence counts them: rollback does not reset
    it."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as db:
        await db.execute("create sequence public.tries")
    text = (
        f"do $$ begin if nextval('public.tries') <= {times} then"
        f" raise exception 'in the way' using errcode = '{code}'; end if; end $$"
    )
    thwarted = replace(migrations()[0], version=2, name="thwarted", text=text)
    monkeypatch.setattr(module, "migrations", lambda: (migrations()[0], thwarted))


async def test_a_schema_of_another_name_works_beside_the_first(rota_dsn: str) -> None:
    """Each app receives only its own notifications, and neither runs the other app's jobs."""
    async with (
        Rota(rota_dsn, poll_interval=60) as first,
        Rota(rota_dsn, schema="other", poll_interval=60) as second,
        Harness(first) as mine,
        Harness(second) as theirs,
    ):
        assert await second.migrate() != []
        tasks = [app.task(name="whoami")(_whoami(app)) for app in (first, second)]
        async with first.worker(), second.worker():
            for harness, task, schema in zip((mine, theirs), tasks, ("rota", "other"), strict=True):
                run = await task.start()
                # The notification wakes the worker: a poll would take a minute.
                assert await run.result(timeout=60) == schema
                await harness.wait_for_event(JobFinished, job=run.id)
        done = [[e for e in h.events if isinstance(e, JobFinished)] for h in (mine, theirs)]
        assert [len(each) for each in done] == [1, 1]

    async with await AsyncConnection.connect(rota_dsn) as db:
        counts = await db.execute(
            "select (select count(*) from rota.outcomes), (select count(*) from other.outcomes)"
        )
        assert await counts.fetchone() == (1, 1)
        found = await db.execute(
            "select prosrc from pg_proc where pronamespace = 'other'::regnamespace"
            " and prosrc ~ '\\mrota\\.'"
        )
        assert await found.fetchall() == []


def _whoami(app: Rota) -> Any:
    async def whoami() -> str:
        return app.settings.schema

    return whoami
