"""Migrating: any number of processes at once, one of them does it; all of it or nothing."""

from __future__ import annotations

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
from rota.testing.server import Server

from .racers import race

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def empty_dsn(rota_server: Server) -> Iterator[str]:
    with rota_server.empty_database() as dsn:
        yield dsn


@pytest.fixture
async def empty(empty_dsn: str) -> AsyncIterator[Database]:
    database = Database(empty_dsn, Settings())
    yield database
    await database.close()


async def relations(dsn: str) -> list[Any]:
    """Everything in the database that is not PostgreSQL's own."""
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
    with pytest.raises(SchemaMissing, match=r"has not got Rota's tables.*rota db migrate"):
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


async def test_a_schema_of_another_name_works_beside_the_first(rota_dsn: str) -> None:
    """Notifications too: each app hears its own, and neither runs the other's jobs."""
    async with (
        Rota(rota_dsn, poll=60) as first,
        Rota(rota_dsn, schema="other", poll=60) as second,
        Harness(first) as mine,
        Harness(second) as theirs,
    ):
        assert await second.migrate() != []
        tasks = [app.task(name="whoami")(_whoami(app)) for app in (first, second)]
        async with first.worker(), second.worker():
            for harness, task, schema in zip((mine, theirs), tasks, ("rota", "other"), strict=True):
                run = await task.start()
                # Found by notification, not by looking: that would take a minute.
                assert await run.result(timeout=10) == schema
                await harness.saw(JobFinished, job=run.id)
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
