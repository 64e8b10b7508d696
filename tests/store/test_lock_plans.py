"""Lock statements read only the rows they concern, and renewals do not bloat the table.

All but renewals run on ordinary connections and are prepared, so a plan may be older than most of the
rows. The server's own counters of rows read are checked.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from rota.store import locks
from rota.store.query import Query
from support.lock_calls import ME, NAME, OTHER, acquire_query, acquire_token
from support.scale import scale
from support.stage import Connection, Stage

MANY = scale(30_000, 100_000)
HELD = 50
"""Locks renewed by one statement."""

READ = """
select coalesce(sum(seq_tup_read), 0)::int, coalesce(sum(idx_tup_fetch), 0)::int
  from pg_stat_xact_user_tables
 where schemaname = 'rota' and relname = 'locks'
"""

FILL = """
insert into rota.locks (name, slot, token, instance, nonce, host, pid, label, acquired, expires)
select 'lock ' || number, 0, nextval('rota.tokens'), gen_random_uuid(), gen_random_uuid(), 'host', 1, '',
       rota.clock(), rota.clock() + interval '1 h'
  from generate_series(1, %s) as number
"""


async def read_by(stage: Stage, query: Query[Any], on: Connection) -> tuple[int, int]:
    """Return the rows read by scans of the table and by its index. Changes are rolled back."""
    async with on.transaction(force_rollback=True):
        [before] = await stage.sql(READ, on=on)
        await stage.run(query, on)
        [after] = await stage.sql(READ, on=on)
    return after[0] - before[0], after[1] - before[1]


async def excess(stage: Stage, on: Connection, keeper: Connection) -> dict[str, tuple[int, int]]:
    """Run each statement often enough for its plan to be cached; return those that read too many rows."""
    token = await acquire_token(stage)
    held = [(f"mine {number}", number, 30.0) for number in range(HELD)]
    await stage.sql(
        "insert into rota.locks (name, slot, token, instance, expires)"
        " select 'mine ' || number, 0, number, %s, rota.clock() + interval '1 h'"
        "   from generate_series(0, %s) as number on conflict do nothing",
        *(ME, HELD - 1),
    )
    statements: dict[str, Query[Any]] = {
        "take": acquire_query(),
        "wait": acquire_query(by=OTHER, wait=True),
        "take one that is free": acquire_query(name=f"new {uuid4()}"),
        "take a permit": acquire_query(name="permits", permits=10),
        "renew": locks.renew(ME, held),
        "renew one": locks.renew(ME, held[:1]),
        "release": locks.release(NAME, 0, token),
        "abandon": locks.abandon(NAME, [uuid4()], ME),
        "rely on it": locks.assert_lock(NAME, token),
    }
    wrong = {}
    for name, query in statements.items():
        for _ in range(7):
            scanned, fetched = await read_by(
                stage, query, keeper if name.startswith("renew") else on
            )
        few = 3 * HELD if name == "renew" else 12
        # Scanning a table of a page or two is acceptable, except for renewals.
        little = 0 if name.startswith("renew") else 10 * HELD
        if scanned > little or fetched > few:
            wrong[name] = (scanned, fetched)
    await stage.sql("update rota.locks set instance = null where name = %s", NAME)
    return wrong


@pytest.mark.parametrize(
    ("rows", "analysed"),
    scale(
        [(0, "never"), (0, "empty"), (1000, "full"), (MANY, "empty")],
        [(rows, each) for rows in (0, 1000, MANY) for each in ("never", "empty", "full")],
    ),
)
async def test_lock_statements_read_few_rows(own_stage: Stage, rows: int, analysed: str) -> None:
    stage, on = own_stage, await own_stage.connect()
    await stage.sql("set statement_timeout = 0")
    await stage.sql("alter table rota.locks set (autovacuum_enabled = off)")
    if analysed == "empty":
        await stage.sql("analyze rota.locks")
    assert await excess(stage, on, stage.engine) == {}
    await stage.sql(FILL, rows)
    fresh, keeper = await stage.connect(), await stage.connect(engine=True)
    assert await excess(stage, fresh, keeper) == {}, "with plans of now"
    if analysed == "full":
        await stage.sql("analyze rota.locks")
    if analysed != "empty":
        assert await excess(stage, on, stage.engine) == {}, "with plans from before"
        return
    # Plans made for a nearly empty table are kept until the table is analysed; renewals do not depend on
    # that.
    assert not {"renew", "renew one"} & {*await excess(stage, on, stage.engine)}
    await stage.sql("analyze rota.locks")
    assert await excess(stage, on, stage.engine) == {}


async def test_lock_renewals_are_updates_in_place(own_stage: Stage) -> None:
    """No index entry is added, and the table does not grow."""
    stage = own_stage
    on = await stage.connect()
    await stage.sql("alter table rota.locks set (autovacuum_enabled = off)")
    tokens = [await acquire_token(stage, name=f"lock {number}") for number in range(10)]
    size = "select pg_relation_size('rota.locks'), pg_relation_size('rota.locks_pkey')"
    before = await stage.one(size)
    held = [(f"lock {number}", token, 30.0) for number, token in enumerate(tokens)]

    for _ in range(100):
        answers = await stage.run(locks.renew(ME, held), on)
        assert all(answer.renewed for answer in answers)
    await on.close()  # a session reports its statistics when it ends

    async with asyncio.timeout(60):
        updated, in_place = 0, 0
        while updated < 1000:
            await asyncio.sleep(0.05)
            updated, in_place = await stage.one(
                "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables"
                " where schemaname = 'rota' and relname = 'locks'"
            )
    after = await stage.one(size)
    print(f"{in_place} of {updated} renewals in place; {before} bytes before, {after} after")
    assert in_place == updated == 1000
    assert after[0] <= before[0] + 3 * 8192
    assert after[1] == before[1]
