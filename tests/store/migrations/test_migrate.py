"""Migration: one of many concurrent processes migrates, and a failed migration is rolled back."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import SchemaChanged, SchemaMissing, SchemaTooNew, SchemaTooOld
from rota.model.events import JobFinished
from rota.model.settings import Settings
from rota.store import migrate as module
from rota.store.database import Database
from rota.store.migrate import check, compare_schema, migrate, migrations, script
from rota.testing import Harness
from rota.testing.server import DatabaseServer
from support.concurrent_migration import migrate_concurrently
from support.newer_migration import NEWER_MIGRATION
from support.places import ROOT


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


async def applied_labels(database: Database) -> list[str]:
    return [each.label for each in (await compare_schema(database)).applied]


def test_schema_dump_equals_result_of_migrations(rota_dsn: str) -> None:
    dump = runpy.run_path(str(ROOT / "tools" / "dump_schema.py"))["dump"]
    golden = ROOT / "src" / "rota" / "store" / "schema.sql"

    assert golden.read_text("utf-8") == dump(rota_dsn), "run `make schema` and review the change"


def test_migrations_are_numbered_without_gap_and_marked_breaking_or_not() -> None:
    assert [each.version for each in migrations()] == [*range(1, len(migrations()) + 1)]
    for each in migrations():
        assert each.text.startswith(("-- breaking: yes\n", "-- breaking: no\n")), each.name


async def test_migrate_twice_applies_nothing_the_second_time(empty: Database) -> None:
    assert await migrate(empty) == list(migrations())
    assert await migrate(empty) == []

    await check(empty)
    assert await applied_labels(empty) == [each.label for each in migrations()]


def test_migrate_in_32_processes_succeeds_in_all_and_applies_once(empty_dsn: str) -> None:
    answers = migrate_concurrently(empty_dsn, 32)

    assert [answer.error for answer in answers if answer.error] == []
    assert sorted(answer.applied for answer in answers) == [0] * 31 + [len(migrations())]


async def test_check_of_empty_database_raises_schema_missing_with_remedy(empty: Database) -> None:
    with pytest.raises(SchemaMissing, match=r"has no tables of Rota.*rota db migrate"):
        await check(empty)
    assert await applied_labels(empty) == []


async def test_check_of_older_schema_raises_schema_too_old_with_remedy(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(empty)
    later = replace(migrations()[0], version=len(migrations()) + 1, name="later", text="select 1")
    monkeypatch.setattr(module, "migrations", lambda: (*migrations(), later))

    with pytest.raises(SchemaTooOld, match=r"1 migration behind .*later.*rota db migrate"):
        await check(empty)


@pytest.mark.parametrize("act", [migrate, check], ids=["migrate", "check"])
async def test_migrate_and_check_of_newer_schema_are_refused(
    empty_dsn: str, empty: Database, act: Any
) -> None:
    await migrate(empty)
    async with await AsyncConnection.connect(empty_dsn, autocommit=True) as db:
        await db.execute(NEWER_MIGRATION, [9999, True])
    before = await relations(empty_dsn)

    with pytest.raises(SchemaTooNew, match=r"migration 9999_newer, .*Upgrade Rota"):
        await act(empty)

    assert await relations(empty_dsn) == before


async def test_worker_on_newer_schema_is_refused(rota_app: Rota, db: Any) -> None:
    rota_app.task(name="anything")(lambda: None)
    await db.execute(NEWER_MIGRATION, [9999, True])

    with pytest.raises(SchemaTooNew):
        async with rota_app.worker():
            pytest.fail("the worker started")


@pytest.mark.parametrize("act", [migrate, check, script], ids=["migrate", "check", "script"])
async def test_migrate_and_check_after_edited_migration_are_refused(
    empty: Database, monkeypatch: pytest.MonkeyPatch, act: Any
) -> None:
    await migrate(empty)
    first, *rest = migrations()
    edited = replace(first, text=first.text + "alter table rota.jobs add column forgotten int;\n")
    monkeypatch.setattr(module, "migrations", lambda: (edited, *rest))

    with pytest.raises(SchemaChanged, match=r"migration 0001_jobs .*edited after it ran"):
        await act(empty)


async def test_worker_on_newer_schema_without_breaking_migration_works(
    rota_app: Rota, db: Any
) -> None:
    task = rota_app.task(name="anything")(lambda: "done")
    await db.execute(NEWER_MIGRATION, [9999, False])

    assert await rota_app.migrate() == []
    async with rota_app.worker():
        assert await (await task.start()).result() == "done"


async def test_schema_newer_and_incomplete_is_refused(empty: Database, empty_dsn: str) -> None:
    await migrate(empty)
    async with await AsyncConnection.connect(empty_dsn, autocommit=True) as db:
        await db.execute(NEWER_MIGRATION, [9999, False])
        await db.execute("delete from rota.migrations where version = 3")

    with pytest.raises(SchemaTooNew):
        await migrate(empty)


@pytest.mark.parametrize("count", [0, 3])
async def test_migration_script_run_by_psql_equals_migrate(
    empty: Database, empty_dsn: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(module, "migrations", lambda: migrations()[:count])
    if count:
        await migrate(empty)
    monkeypatch.undo()

    printed = await script(empty)
    async with await AsyncConnection.connect(empty_dsn, autocommit=True) as db:
        await db.execute(printed.encode(), prepare=False)

    await check(empty)
    assert await script(empty) == ""
    dump = runpy.run_path(str(ROOT / "tools" / "dump_schema.py"))["dump"]
    golden = ROOT / "src" / "rota" / "store" / "schema.sql"
    assert dump(empty_dsn) == golden.read_text("utf-8")


async def test_migrate_failing_migration_rolls_back_earlier_ones(
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


@pytest.mark.parametrize("count", range(1, len(migrations())))
async def test_migrate_of_partial_schema_applies_only_missing_migrations(
    empty: Database, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(module, "migrations", lambda: migrations()[:count])
    assert await migrate(empty) == list(migrations()[:count])
    monkeypatch.undo()
    with pytest.raises(SchemaTooOld, match=f"{len(migrations()) - count} migration"):
        await check(empty)

    assert await migrate(empty) == list(migrations()[count:])

    await check(empty)
    assert await applied_labels(empty) == [each.label for each in migrations()]


INDEXES = """\
-- breaking: no
create index ticks_added on rota.ticks (at);
create index runs_added on rota.runs (created);
create index locks_added on rota.locks (expires);
create index audit_added on rota.audit (at);
"""
"""Migration of tables in use. It locks them in the order in which workers do."""


async def test_migrate_while_a_worker_handles_a_tick_lets_both_finish(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migration waits for the worker's transaction and locks no table that the worker still needs."""
    await migrate(empty)
    added = replace(migrations()[0], version=len(migrations()) + 1, name="added", text=INDEXES)
    monkeypatch.setattr(module, "migrations", lambda: (*migrations(), added))
    async with await AsyncConnection.connect(empty_dsn) as worker:
        await worker.execute("set lock_timeout = '0.5s'")  # the worker is never blocked
        await worker.execute("update rota.ticks set at = at where false")
        migrating = asyncio.create_task(migrate(empty))
        await until_a_session_waits_for_a_table(empty_dsn)

        await worker.execute("update rota.runs set id = id where false")
        await worker.execute("update rota.locks set name = name where false")
        await worker.execute("update rota.audit set operator = operator where false")

    assert await migrating == [added]
    assert ("relation", "rota.audit_added") in await relations(empty_dsn)


async def until_a_session_waits_for_a_table(dsn: str) -> None:
    async with (
        asyncio.timeout(60),
        await AsyncConnection.connect(dsn, autocommit=True) as watch,
    ):
        asked = "select from pg_locks where not granted and relation is not null"
        while await (await watch.execute(asked)).fetchone() is None:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("code", ["40P01", "55P03"], ids=["deadlock", "lock timeout"])
async def test_migrate_after_contention_is_retried(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    await install_failing_migration(empty_dsn, monkeypatch, code, times=2)

    assert len(await migrate(empty)) == 2
    assert await applied_labels(empty) == [migrations()[0].label, "0002_failing"]


async def test_migrate_under_lasting_contention_raises_the_error(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)
    await install_failing_migration(empty_dsn, monkeypatch, "40P01", times=1000)

    with pytest.raises(psycopg.errors.DeadlockDetected):
        await migrate(empty)


async def test_migrate_with_syntax_error_is_not_retried(
    empty_dsn: str, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_failing_migration(empty_dsn, monkeypatch, "42601", times=1)

    with pytest.raises(psycopg.errors.SyntaxError):
        await migrate(empty)


async def install_failing_migration(
    dsn: str, monkeypatch: pytest.MonkeyPatch, code: str, times: int
) -> None:
    """Install a migration that fails this many times. A sequence counts them: rollback does not reset
    it."""
    async with await AsyncConnection.connect(dsn, autocommit=True) as db:
        await db.execute("create sequence public.tries")
    text = (
        f"do $$ begin if nextval('public.tries') <= {times} then"
        f" raise exception 'contended' using errcode = '{code}'; end if; end $$"
    )
    failing = replace(migrations()[0], version=2, name="failing", text=text)
    monkeypatch.setattr(module, "migrations", lambda: (migrations()[0], failing))


async def test_second_schema_in_one_database_is_independent(rota_dsn: str) -> None:
    """Each app receives only its own notifications, and neither runs the other app's jobs."""
    async with (
        Rota(rota_dsn, poll_interval=60) as first,
        Rota(rota_dsn, schema="other", poll_interval=60) as second,
        Harness(first) as mine,
        Harness(second) as theirs,
    ):
        assert await second.migrate() != []
        tasks = [app.task(name="whoami")(_schema_task(app)) for app in (first, second)]
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


def _schema_task(app: Rota) -> Any:
    async def whoami() -> str:
        return app.settings.schema

    return whoami
