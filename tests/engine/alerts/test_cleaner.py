"""Retention of rows beside runs: old alerts, audit rows, unused rate limits and locks are removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import Rota
from rota.engine.maintenance import cleaner as tidying
from rota.engine.maintenance.cleaner import Cleaner, clean
from rota.model.settings import Settings
from rota.store import rate_limits, workers
from rota.store.database import Database
from rota.store.retention import FROM_START, CleanResult
from support.alert_helpers import Sql


@pytest.fixture
async def database(rota_dsn: str) -> AsyncIterator[Database]:
    database = Database(
        rota_dsn, Settings(alert_retention=7 * 86400.0, audit_retention=float("inf"))
    )
    yield database
    await database.close()


async def remaining(db: Sql, table: str, column: str) -> list[Any]:
    cursor = await db.execute(f"select {column} from rota.{table} order by 1".encode())
    return [row[0] for row in await cursor.fetchall()]


async def test_cleaner_closed_alerts_are_removed_after_retention(
    db: Sql, database: Database
) -> None:
    for subject, cleared in (
        ("open", "null"),
        ("young", "now() - interval '6 d'"),
        ("old", "now() - interval '8 d'"),
    ):
        await db.execute(
            "insert into rota.alerts (kind, subject, message, host, pid, raised, cleared)"
            f" values ('k', '{subject}', 'm', 'h', 1, now() - interval '9 d', {cleared})".encode()
        )
    tidied = await clean(database, FROM_START)
    assert tidied is not None
    assert (tidied.alerts, tidied.total) == (1, 1)
    assert await remaining(db, "alerts", "subject") == ["open", "young"]


async def test_cleaner_audit_rows_are_removed_after_audit_retention(rota_dsn: str, db: Sql) -> None:
    await db.execute(
        "insert into rota.audit (at, operator, action, subject)"
        " select now() - n * interval '1 d', 'me', 'did', 'it' from generate_series(400, 1, -100) as n"
    )
    for keep, many in ((float("inf"), 4), (365 * 86400.0, 3)):
        database = Database(rota_dsn, Settings(audit_retention=keep))
        await clean(database, FROM_START)
        assert len(await remaining(db, "audit", "id")) == many
        await database.close()


async def test_cleaner_unused_rate_limit_is_removed(db: Sql, database: Database) -> None:
    await db.execute(
        "insert into rota.rate_limits (name, refilled_at, interval_seconds, last_used) values"
        " ('idle', now() - interval '2 d', 1, now() - interval '2 d'),"
        " ('used', now() - interval '2 d', 1, now() - interval '1 h'),"
        " ('owing', now() + interval '1 h', 3600, now() - interval '2 d')"
    )
    await clean(database, FROM_START)
    assert await remaining(db, "rate_limits", "name") == ["owing", "used"]
    [turn] = await database.run(rate_limits.take("idle", 1, 10.0, 1, 0.0))
    assert (turn.delay, turn.is_reserved) == (0.0, True)


async def test_cleaner_lock_unheld_for_a_month_is_removed(db: Sql, database: Database) -> None:
    await db.execute(
        "insert into rota.locks (name, slot, token, instance, acquired, expires) values"
        " ('free', 0, 1, null, now() - interval '40 d', now() - interval '39 d'),"
        " ('permits', 2, 2, null, now() - interval '40 d', now() - interval '40 d'),"
        " ('lost', 0, 3, gen_random_uuid(), now() - interval '40 d', now() - interval '39 d'),"
        " ('held', 0, 4, gen_random_uuid(), now() - interval '40 d', now() + interval '1 m'),"
        " ('lately', 0, 5, null, now() - interval '40 d', now() - interval '2 d')"
    )
    tidied = await clean(database, FROM_START)
    assert tidied is not None
    assert tidied.locks == 3
    assert await remaining(db, "locks", "name") == ["held", "lately"]


async def test_cleaner_undeclared_schedule_ended_a_month_ago_is_removed(
    db: Sql, database: Database
) -> None:
    await db.execute(
        "insert into rota.schedules (name, declared, kind, target, input, anchor, state, last) values"
        " ('over', false, 'task', 't', '{}', now(), 'ended', now() - interval '40 d'),"
        " ('lately', false, 'task', 't', '{}', now(), 'ended', now() - interval '2 d'),"
        " ('lasting', false, 'task', 't', '{}', now(), 'ended', now() - interval '40 d'),"
        " ('paused', false, 'task', 't', '{}', now(), 'paused', now() - interval '40 d'),"
        " ('declared', true, 'task', 't', '{}', now(), 'ended', now() - interval '40 d')"
    )
    await db.execute(
        "insert into rota.ticks (schedule, tick, number, state, host, pid, run, ended) values"
        " ('over', now(), 1, 'started', 'h', 1, 1, now()),"
        " ('lasting', now(), 1, 'started', 'h', 1, 2, null)"
    )
    tidied = await clean(database, FROM_START)
    assert tidied is not None
    assert (tidied.schedules, tidied.total) == (1, 1)
    assert await remaining(db, "schedules", "name") == ["declared", "lasting", "lately", "paused"]
    assert await remaining(db, "ticks", "schedule") == ["lasting"]


async def test_cleaner_removed_lock_gets_a_larger_token_next(rota_app: Rota, db: Sql) -> None:
    async with rota_app.lock("invoices") as lock:
        first = lock.token
        await db.execute(
            "update rota.locks set acquired = now(), expires = now() - interval '60 d'"
        )
        await db.execute("update rota.locks set acquired = expires")
        tidied = await clean((await rota_app.open()).database, FROM_START)
        assert tidied is not None
        assert tidied.locks == 1
        with pytest.raises(Exception, match="no longer held under token"):
            await db.execute("select rota.assert_lock('invoices', %s)", (first,))
        async with rota_app.lock("invoices") as next:
            assert next.token > first
            await next.release()
        await _release_if_held(lock)


async def _release_if_held(lock: Any) -> None:
    """Release a lock that may already be lost."""
    try:
        await lock.release()
    except Exception:
        return


async def test_cleaner_lock_asserted_by_transaction_is_kept(
    direct_dsn: str, db: Sql, database: Database
) -> None:
    await db.execute(
        "insert into rota.locks (name, slot, token, acquired, expires)"
        " values ('free', 0, 1, now() - interval '40 d', now() - interval '39 d')"
    )
    async with await type(db).connect(direct_dsn) as other:
        await other.execute("select from rota.locks for key share")
        async with asyncio.timeout(60):
            await clean(database, FROM_START)
    assert await remaining(db, "locks", "name") == ["free"]


async def test_cleaner_limited_pass_resumes_and_wraps_around(db: Sql, database: Database) -> None:
    for n in range(5):
        await db.execute("insert into rota.rate_limits values (%s, now(), 1, now())", (f"r{n}",))
        await db.execute(
            "insert into rota.locks (name, slot, token, acquired, expires)"
            " values ('l', %s, %s, now(), now())",
            (n, n),
        )
    places = []
    after: CleanResult | None = FROM_START
    for _ in range(4):
        assert after is not None
        after = await clean(database, after, limit=2)
        assert after is not None
        places.append((after.last_rate_limit, after.last_lock, after.last_permit))
    assert places == [("r1", "l", 1), ("r3", "l", 3), ("", "", -1), ("r1", "l", 1)]


async def test_cleaner_of_two_workers_only_the_oldest_cleans(
    db: Sql, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "FIRST_CLEAN_SECONDS", 0.0)
    ids = []
    for _ in range(2):
        ids += await database.run(workers.register("host", 1, "0", ["default"], ["work"], 1))
    await db.execute(
        "insert into rota.refused_outcomes (at, host, pid, jobs) values (now() - interval '2 d', 'h', 1, 1)"
    )
    first, second = (Cleaner(database, id) for id in ids)
    rest = await second.tick()
    assert len(await remaining(db, "refused_outcomes", "host")) == 1
    await first.tick()
    assert await remaining(db, "refused_outcomes", "host") == []
    assert rest is not None
    assert 200 < rest < 400
