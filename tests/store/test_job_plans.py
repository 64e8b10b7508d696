"""The hot statements have one plan, over indexes, with any statistics.

`outcomes` analysed while it was empty once made every completion read all of it. So each statement is
explained, as the engine's connection prepares it, on tables that were never analysed, analysed while
empty and then filled, and analysed full. It may only read the rows it works on.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from psycopg import sql

from rota.store import claims, jobs, listeners, runs, timers
from rota.store.query import Query, positional
from support.stage import Batch, Stage

MANY = 1_000_000 if os.environ.get("ROTA_TEST_LONG") == "1" else 30_000
BATCH = 100
PLACES = 10
TABLES = (
    *("jobs", "queued", "sleeping", "claims", "outcomes", "attempts", "keys", "waiters", "cancels"),
    *("runs", "waiting", "pending_releases"),
)

# Only the rows of `queued` have jobs. For the other tables just the number of rows matters.
FILL = (
    "insert into rota.jobs (id, priority, task, queue, args)"
    " select nextval('rota.ids'), 0, 'work', 'default', '{}' from generate_series(1, %(rows)s)",
    "insert into rota.queued (seq, job, priority, queue, task)"
    " select id, id, priority, queue, task from rota.jobs",
    "insert into rota.sleeping (job, wake_at, priority, queue, task)"
    " select -id, rota.clock() + id * interval '1 min', priority, queue, task from rota.jobs",
    "insert into rota.outcomes (job, state, attempt) select -id, 'succeeded', 1 from rota.jobs",
    "insert into rota.attempts (job, state, attempt)"
    " select -id, 'failed', 1 from rota.jobs limit 100000",
    "insert into rota.waiters (job, listener) select -id, 'me' from rota.jobs limit 100000",
    "insert into rota.claims (worker, nonce, jobs, attempts, lost, seqs)"
    " select 0, gen_random_uuid(), array[-id], array[1], array[0], array[-id]"
    "   from rota.jobs order by id limit least(%(rows)s, 1000)",
)


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows read by one node of a plan, in all its loops."""

    kind: str
    table: str
    read: float
    rounds: int


def scans(node: dict[str, Any]) -> Iterator[Scan]:
    if "Relation Name" in node and "Scan" in node["Node Type"]:
        rounds = node["Actual Loops"]
        removed = node.get("Rows Removed by Filter", 0) + node.get(
            "Rows Removed by Index Recheck", 0
        )
        read = (node["Actual Rows"] + removed) * rounds
        yield Scan(node["Node Type"], node["Relation Name"], read, rounds)
    for child in node.get("Plans", ()):
        yield from scans(child)


async def explain(stage: Stage, query: Query[Any]) -> list[Scan]:
    """Return the scans of a statement on the engine's connection. Changes are rolled back."""
    text, names = positional(query.statement, stage.schema)
    values = sql.SQL(", ").join(
        # Literals of unknown type, as the driver sends them.
        sql.SQL("{}").format(sql.Literal(query.params[name]))
        for name in names
    )
    async with stage.engine.transaction(force_rollback=True):
        await stage.engine.execute(b"prepare guarded as " + text.encode(), prepare=False)
        try:
            cursor = await stage.engine.execute(
                sql.SQL(
                    "explain (analyze, costs off, timing off, format json) execute guarded ({})"
                )
                .format(values)
                .as_bytes(stage.engine),
                prepare=False,
            )
            [[raw]] = await cursor.fetchall()
        finally:
            await stage.engine.execute("deallocate guarded")
    [explained] = json.loads(raw)
    return list(scans(explained["Plan"]))


async def fill(stage: Stage, rows: int) -> None:
    await stage.sql("set statement_timeout = 0")
    for statement in FILL:
        await stage.watch.execute(statement.encode(), {"rows": rows})


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
        "seize": claims.lock_exclusive(worker, [batch.id]),
        "release": claims.release(worker, [batch.id], given[: many // 2]),
        "finish": jobs.finish(
            *(worker, [batch.id] * many, given, ["failed"] * many, ["{}"] * many, [0.0] * many)
        ),
        "retry": jobs.retry(
            *(worker, [batch.id] * many, given, [60.0] * many, ["{}"] * many, [0.0] * many)
        ),
        "give back": jobs.return_to_queue(worker, [batch.id], given),
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


@pytest.mark.parametrize("rows", [0, 1000])
async def test_job_statements_read_few_rows_by_index(filled: Stage, rows: int) -> None:
    await check_all(filled)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [MANY])
async def test_job_statements_among_many_rows_read_few_by_index(filled: Stage, rows: int) -> None:
    await check_all(filled)
