"""Problems that are caused on purpose: each is found with a figure, and the suggested remedy solves it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota.engine.diagnosis import doctor_checks
from rota.model.check_result import CheckResult
from support.doctor import Doctor, now
from support.newer_migration import NEWER_MIGRATION

Database = AsyncConnection[Any]


async def fetch_value(db: Database, text: str, *params: Any) -> Any:
    cursor = await db.execute(text.encode(), params)
    found = await cursor.fetchone()
    assert found is not None
    return found[0]


async def apply_fix(db: Database, checked: CheckResult) -> None:
    """Apply the suggested remedy."""
    assert checked.fix is not None
    await db.execute(checked.fix.encode())


async def eventually(condition: Callable[[], Awaitable[CheckResult]], level: str) -> CheckResult:
    """Repeat a check until it has this level: the server's statistics are delayed."""
    found = await condition()
    async with asyncio.timeout(60):
        while found.level != level:
            await asyncio.sleep(0.05)
            found = await condition()
    return found


async def test_doctor_healthy_database_has_no_problem(doctor: Doctor, db: Database) -> None:
    found = await doctor.look()

    bad = {each.check for each in found if each.level == "problem"}
    expected = set() if await fetch_value(db, "show fsync") == "on" else {"durability"}
    assert bad == expected
    whole = await fetch_value(db, "show full_page_writes") == "on"
    noticed = {each.check for each in found if each.level == "notice"}
    assert noticed <= {"workers", "snapshots"} | (set() if whole else {"durability"})
    assert all(each.fix for each in found if each.level in ("problem", "notice"))


async def test_doctor_open_transaction_is_found_and_ended_by_fix(
    doctor: Doctor, db: Database, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "NOTICE_TRANSACTION_SECONDS", 0.0)
    monkeypatch.setattr(doctor_checks, "PROBLEM_TRANSACTION_SECONDS", 0.05)
    holder = await psycopg.AsyncConnection.connect(direct_dsn, application_name="report")
    await holder.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await holder.execute("select count(*) from rota.jobs")
    age = "select extract(epoch from clock_timestamp() - xact_start)::float8 from pg_stat_activity"
    of_holder = f"{age} where pid = {holder.info.backend_pid}"
    while await fetch_value(db, of_holder) < 0.1:
        await asyncio.sleep(0.01)

    found = await doctor.one("snapshots")

    pid = holder.info.backend_pid
    assert found.level == "problem"
    assert f"process {pid} (report, idle in transaction)" in found.message
    assert found.value is not None
    assert 0.05 < found.value < await fetch_value(db, of_holder)
    assert found.fix is not None
    statement = found.fix.split(";")[0]
    assert statement == f"select pg_terminate_backend({pid})"
    await db.execute(statement.encode())
    mended = await eventually(lambda: doctor.one("snapshots"), "ok")
    assert mended.message == "no transaction is open"
    await holder.close()


async def test_doctor_missing_index_is_recreated_by_fix(doctor: Doctor, db: Database) -> None:
    await db.execute("drop index rota.queued_order")
    await db.execute("alter table rota.outcomes drop constraint outcomes_pkey")

    found = {each.message.split()[1]: each for each in await doctor.finds("indexes")}

    assert {name: each.level for name, each in found.items()} == {
        "outcomes_pkey": "problem",
        "queued_order": "problem",
    }
    for each in found.values():
        await apply_fix(db, each)
    assert (await doctor.one("indexes")).level == "ok"


async def test_doctor_invalid_index_is_rebuilt_by_fix(doctor: Doctor, db: Database) -> None:
    await db.execute(
        "update pg_index set indisvalid = false where indexrelid = 'rota.queued_order'::regclass"
    )

    found = await doctor.one("indexes")

    assert (found.level, found.fix) == (
        "problem",
        "reindex index concurrently rota.queued_order;",
    )
    await apply_fix(db, found)
    assert (await doctor.one("indexes")).level == "ok"


async def test_doctor_unknown_unused_index_is_dropped_by_fix(doctor: Doctor, db: Database) -> None:
    await db.execute("create index mine on rota.queued (task)")

    found = await doctor.one("indexes")

    assert found.level == "notice"
    assert "rota.mine" in found.message
    await apply_fix(db, found)
    assert (await doctor.one("indexes")).level == "ok"


async def test_doctor_dead_rows_and_disabled_autovacuum_are_fixed(
    doctor: Doctor, db: Database, direct_dsn: str
) -> None:
    await db.execute("alter table rota.queued set (autovacuum_enabled = false)")
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as busy:
        await busy.execute(
            "insert into rota.queued (seq, job, priority, queue, task)"
            " select number, number, 0, 'default', 'work' from generate_series(1, 25000) as number"
        )
        await busy.execute("delete from rota.queued")

    dead = await eventually(lambda: doctor.one("dead rows"), "notice")
    off = await doctor.one("autovacuum")

    assert dead.value == 25000
    assert "rota.queued has 25,000 dead rows" in dead.message
    assert (off.level, off.message) == ("problem", "autovacuum is off for rota.queued")
    await apply_fix(db, dead)
    await apply_fix(db, off)
    assert (await eventually(lambda: doctor.one("dead rows"), "ok")).level == "ok"
    assert (await doctor.one("autovacuum")).level == "ok"


async def test_doctor_clock_difference_is_found(doctor: Doctor, db: Database) -> None:
    def ahead(seconds: float) -> Callable[[], Any]:
        return lambda: now() + timedelta(seconds=seconds)

    fast, slow = await doctor.one("clock", now=ahead(45)), await doctor.one("clock", now=ahead(-3))

    assert (fast.level, slow.level) == ("problem", "notice")
    assert fast.value is not None
    assert slow.value is not None
    assert 44 < fast.value <= 45.5
    assert -3.5 <= slow.value < -2
    assert "before the server's" in fast.message
    assert "behind the server's" in slow.message
    assert (await doctor.one("clock")).level == "ok"

    await db.execute(
        "create or replace function rota.clock() returns timestamptz language sql stable parallel safe"
        " return statement_timestamp() + interval '1 day'"
    )
    left = (await doctor.finds("clock"))[0]
    assert (left.level, left.value) == ("problem", 86400)


async def test_doctor_jobs_without_worker_are_a_problem(doctor: Doctor, db: Database) -> None:
    await db.execute(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity)"
        " values ('there', 1, '', '{default}', '{known}', 10)"
    )
    for task, queue in (("known", "default"), ("unknown", "default"), ("known", "far")):
        await db.execute(f"select rota.start('{task}', queue => '{queue}')".encode())

    found = await doctor.finds("unclaimable")

    assert [(each.level, each.value) for each in found] == [("problem", 1)] * 2
    first, second = found
    assert "the only worker that serves the queue does not know" in first.message
    assert "task 'unknown' in queue 'default'" in first.message
    assert "no worker serves the queue" in second.message
    assert second.fix == "rota worker MODULE:APP -q far"
    await db.execute("update rota.workers set queues = '{default,far}', tasks = '{known,unknown}'")
    assert (await doctor.one("unclaimable")).level == "ok"


async def test_doctor_overdue_sleeping_job_is_a_problem(doctor: Doctor, db: Database) -> None:
    await db.execute("select rota.start('work', delay => '1 hour')")
    assert (await doctor.one("overdue")).level == "ok"
    await db.execute("update rota.sleeping set wake_at = rota.clock() - interval '90 seconds'")

    found = await doctor.one("overdue")

    assert found.level == "problem"
    assert found.value is not None
    assert 90 <= found.value < 100


async def test_doctor_jobs_of_lost_worker_are_a_problem(doctor: Doctor, db: Database) -> None:
    worker = await fetch_value(
        db,
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, last_beat)"
        " values ('gone', 1, '', '{default}', '{work}', 10, rota.clock() - interval '50 seconds')"
        " returning id",
    )
    await db.execute(
        "insert into rota.claims (worker, nonce, jobs, attempts, crashes, seqs)"
        " values (%s, gen_random_uuid(), '{1,2}', '{1,1}', '{0,0}', '{1,2}')",
        (worker,),
    )

    held, silent = await doctor.one("orphans"), await doctor.one("workers")

    assert (held.level, held.value) == ("problem", 2)
    assert f"such as {worker}" in held.message
    assert (silent.level, silent.value) == ("problem", 1)
    await db.execute("update rota.workers set last_beat = rota.clock()")
    assert (await doctor.one("orphans")).level == "ok"
    assert (await doctor.one("workers")).level == "ok"
    await db.execute(
        "update rota.workers set state = 'dead', ended = rota.clock() - interval '1 h'"
    )
    assert (await doctor.one("orphans")).level == "problem"


async def test_doctor_listener_that_does_not_read_is_a_notice(
    doctor: Doctor, db: Database, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "NOTICE_QUEUE_SHARE", 1e-5)
    listener = await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True)
    await listener.execute("listen filled")
    await listener.set_autocommit(False)
    await listener.execute("select 1")  # inside a transaction no notification is delivered
    await db.execute(
        "select pg_notify('filled', number || repeat('x', 7900)) from generate_series(1, 100) as number"
    )

    found = await doctor.one("notifications")

    assert found.level == "notice"
    assert found.value is not None
    assert found.fix is not None
    assert re.fullmatch(r"select pg_terminate_backend\(\d+\);", found.fix)
    await listener.close()


async def test_doctor_quarantined_job_is_a_notice(doctor: Doctor, db: Database) -> None:
    await db.execute(
        "insert into rota.quarantine (job, priority, attempt, crashes, queue, task)"
        " values (1, 0, 1, 3, 'default', 'work')"
    )

    found = await doctor.one("quarantine")

    assert (found.level, found.value, found.fix) == ("notice", 1, "rota quarantine")


async def test_doctor_missing_or_outdated_schema_is_found(doctor: Doctor, db: Database) -> None:
    missing = await doctor.look(schema="elsewhere")
    assert [each.fix for each in missing if each.check == "schema"] == ["rota db migrate"]
    assert {each.level for each in missing if each.check == "orphans"} == {"unchecked"}

    await db.execute(
        "delete from rota.migrations where version = (select max(version) from rota.migrations)"
    )
    behind = await doctor.one("schema")
    assert (behind.level, behind.value) == ("problem", 1)
    assert (await doctor.one("indexes")).level == "unchecked"
    await db.execute(NEWER_MIGRATION, [9999, True])
    newer = await doctor.one("schema")
    assert (newer.level, newer.fix) == ("problem", "pip install --upgrade pgrota")
    assert "needs a newer Rota" in newer.message


async def test_doctor_newer_usable_schema_is_a_notice(doctor: Doctor, db: Any) -> None:
    await db.execute(NEWER_MIGRATION, [9999, False])
    newer = await doctor.one("schema")
    assert (newer.level, newer.value) == ("notice", 1)
    assert "up to 9999_newer; this version can use them" in newer.message


async def test_doctor_edited_migration_is_a_problem(doctor: Doctor, db: Any) -> None:
    await db.execute("update rota.migrations set checksum = 'other' where version = 2")
    changed = await doctor.one("schema")
    assert (changed.level, changed.value, changed.fix) == ("problem", 1, None)
    assert "edited after it ran" in changed.message
