"""The hot statements have one plan, over indexes, with any statistics.

`outcomes` analysed while it was empty once made every completion read all of it. So each statement is
explained, as the engine's connection prepares it, on tables that were never analysed, analysed while
empty and then filled, and analysed full. It may only read the rows it works on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from rota.store import claims, jobs, listeners, runs, timers
from rota.store.query import Query
from support.plans import BATCH, TABLES, explain, fill
from support.scale import scale
from support.stage import Batch, Stage

PLACES = 10


@pytest.fixture(params=["never analysed", "analysed empty", "analysed full"])
async def filled(own_stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """Stage with many jobs in every place, with and without current statistics."""
    rows: int = request.node.callspec.params["rows"]
    for table in TABLES:
        await own_stage.sql(f"alter table rota.{table} set (autovacuum_enabled = off)")
    if request.param == "analysed empty":
        await own_stage.sql("analyze")
    await fill(own_stage, rows)
    if request.param == "analysed full":
        await own_stage.sql("analyze")
    yield own_stage
    await own_stage.sql(
        "truncate rota.queued, rota.sleeping, rota.outcomes, rota.claims, rota.jobs"
    )


async def check_all(stage: Stage) -> None:
    worker = await stage.worker()
    queues = ["default"] * PLACES
    claim = jobs.claim(worker, uuid4(), ["work"], queues, range(9, -1, -1), [0] * 10, BATCH)

    await stage.start_several(BATCH)
    batch = await stage.claim(worker, BATCH)
    given, many = batch.jobs, len(batch.jobs)
    await stage.sql(
        "insert into rota.sleeping (job, wake_at, priority, queue, task)"
        " select -n - 1e12, rota.clock() - interval '1 s', 0, 'default', 'work'"
        "   from generate_series(1, %s) as n",
        BATCH,
    )
    statements: dict[str, Query[Any]] = {
        "claim": claim,
        "complete": _complete(batch),
        "wake": timers.wake(BATCH),
        "tell": listeners.notify_waiters(given),
        "hold": claims.lock(worker, [batch.id]),
        "retry": jobs.retry(
            *(worker, [batch.id] * many, given, [60.0] * many, ["{}"] * many, [0.0] * many)
        ),
        "give back": jobs.return_to_queue(worker, [batch.id] * many, given),
        "recorded": jobs.recorded(given, [batch.id]),
        "outcome": runs.outcome(given),
    }
    for name, query in statements.items():
        found = await explain(stage, query)
        assert found, name
        read: Counter[str] = Counter()
        for scan in found:
            assert scan.kind != "Seq Scan", f"{name}: {scan}"
            read[scan.table] += int(scan.read)
        for table, count in read.items():
            # Twice: once to find a row and once to change it.
            assert count <= 2 * BATCH + PLACES, f"{name} read {count} rows of {table}: {found}"


def _complete(batch: Batch) -> Query[Any]:
    many = len(batch.jobs)
    return jobs.complete(batch.worker, [batch.id] * many, batch.jobs, [None] * many, [0.0] * many)


@pytest.mark.parametrize("rows", scale([0, 1000], [0, 1000, 1_000_000]))
async def test_job_statements_read_few_rows_by_index(filled: Stage, rows: int) -> None:
    await check_all(filled)
