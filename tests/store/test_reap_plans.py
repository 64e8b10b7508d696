"""Statements about workers and their claims read only the rows they work on, in tables of any size.

The heartbeat and the reaper run on ordinary connections, and functions keep the plans they made while the
tables were small. So the server's own counters are checked: of the tables that grow without bound, no
scan, and no more rows than needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from rota.store import claims, jobs, workers
from rota.store.query import Query
from support.lost_workers import declare_dead, observe, split
from support.plans import BATCH, TABLES, fill
from support.scale import scale
from support.stage import Connection, Stage

Grown = tuple[Stage, Connection]
"""Stage, and an ordinary connection to it that has been used."""

LARGE = ("jobs", "queued", "outcomes", "sleeping", "attempts", "waiters", "waiting", "runs")

READ = """
select relname, seq_scan, seq_tup_read, coalesce(idx_tup_fetch, 0)
  from pg_stat_xact_user_tables
 where schemaname = 'rota' and relname = any(%s)
"""


async def read_by(stage: Stage, query: Query[Any], on: Connection) -> dict[str, tuple[int, int]]:
    """Return the rows read of each table, by scans and by indexes. Changes are rolled back."""
    async with on.transaction(force_rollback=True):
        before = {table: each for table, *each in await stage.sql(READ, list(LARGE), on=on)}
        await stage.run(query, on)
        after = {table: each for table, *each in await stage.sql(READ, list(LARGE), on=on)}
    return {
        table: (scanned - before[table][1], fetched - before[table][2])
        for table, (_, scanned, fetched) in after.items()
    }


ANALYSED = ("never analysed", "analysed empty", "analysed full")


@pytest.fixture
async def grown(own_stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Grown]:
    """Stage with connections used while the tables were nearly empty; the tables are large now."""
    stage = own_stage
    rows: int = request.node.callspec.params["rows"]
    for table in (*TABLES, "workers", "quarantine", "checkpoints"):
        await stage.sql(f"alter table rota.{table} set (autovacuum_enabled = off)")
    if request.param == "analysed empty":
        await stage.sql("analyze")
    on_hand = await stage.connect()
    await excess(stage, on_hand)
    await fill(stage, rows)
    if request.param == "analysed full":
        await stage.sql("analyze")
    yield stage, on_hand
    await stage.sql("truncate rota.queued, rota.sleeping, rota.outcomes, rota.claims, rota.jobs")


async def excess(stage: Stage, on_hand: Connection) -> dict[tuple[str, str], tuple[int, int]]:
    """Run each statement often enough for its plan to be cached, on its kind of connection.

    Return the tables of which it reads too many rows.
    """
    worker, dead = await stage.worker(), await stage.worker()
    await stage.start_several(BATCH)
    batch = await stage.claim(dead, BATCH)
    own = await split(stage, batch, batch.jobs[0])
    declared = await observe(stage, dead)
    await stage.start_several(BATCH)
    lost = await stage.claim(await stage.worker(), BATCH)
    await declare_dead(stage, lost.worker)
    half = lost.jobs[: BATCH // 2]
    await stage.sql(
        "insert into rota.cancels select unnest(%s::bigint[])", half[:10], on=stage.watch
    )
    ordinary: dict[str, Query[Any]] = {
        "beat": workers.beat(dead, None),
        "look": workers.list_others(worker),
        "declare": workers.mark_dead([declared]),
        "orphans": claims.orphans(0, 100),
        "reap": claims.reap(lost.id),
        "reap some": claims.reap(lost.id, half),
        "pin": claims.lock_shared(dead, own.id, own.jobs[0]),
        "split": claims.split(dead, batch.id, batch.jobs[1], uuid4()),
        "checkpoint": jobs.checkpoint(dead, own.id, own.jobs[0], "1"),
        "forget": workers.delete_ended(1.0),
    }
    many = len(batch.jobs) - 1
    engine: dict[str, Query[Any]] = {
        "claim suspects": jobs.claim_suspects(
            *(worker, uuid4(), ["work"], ["default"], BATCH), grave=True
        ),
        "finish": jobs.finish(
            *(dead, [batch.id] * many, batch.jobs[1:], ["failed"] * many),
            *(["{}"] * many, [0.0] * many),
        ),
        "retry": jobs.retry(
            *(dead, [batch.id] * many, batch.jobs[1:], [60.0] * many),
            *(["{}"] * many, [0.0] * many),
        ),
        "return": jobs.return_to_queue(dead, [batch.id] * many, batch.jobs[1:]),
        "judge": jobs.finish_lost(
            *(dead, [batch.id] * many, batch.jobs[1:], ["failed"] * many, ["{}"] * many)
        ),
        "quarantine": jobs.quarantine(dead, [batch.id] * many, batch.jobs[1:], ["{}"] * many),
    }
    wrong = {}
    for statements, on in ((ordinary, on_hand), (engine, stage.engine)):
        for name, query in statements.items():
            for _ in range(7):
                read = await read_by(stage, query, on)
            for table, (scanned, fetched) in read.items():
                if scanned > 2 * BATCH or fetched > 4 * BATCH:
                    wrong[name, table] = (scanned, fetched)
    # `truncate` would discard the cached plans.
    mine = [*batch.jobs, *lost.jobs]
    for table, column in (("queued", "job"), ("cancels", "job"), ("jobs", "id")):
        await stage.sql(f"delete from rota.{table} where {column} = any(%s)", mine)
    await stage.sql("delete from rota.claims where jobs && %s::bigint[]", mine)
    return wrong


@pytest.mark.parametrize(
    ("grown", "rows"),
    scale(
        [("never analysed", 0), ("analysed empty", 0), ("analysed full", 1000)],
        [(analysed, rows) for analysed in ANALYSED for rows in (0, 1000, 1_000_000)],
    ),
    indirect=["grown"],
)
async def test_reap_statements_read_few_rows(grown: Grown, rows: int) -> None:
    assert await excess(*grown) == {}
