"""Statements on steps, signals and sleeping jobs use indexes and read no more rows than they need.

The tables contain the signals of all runs and a hundred thousand sleeping jobs. The server's own counters
are checked, which include reads in functions; see test_reap_plans.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.model.journal import JournalEntry
from rota.store import runs, signals, steps, timers
from rota.store.jobs import ClaimedJob
from rota.store.query import Query
from rota.store.steps import ProgressUpdate
from support.journals import received_wait, sleep, step, wait
from support.plans import BATCH, TABLES, explain, fill
from support.scale import scale
from support.stage import Connection, Stage
from support.step_reads import LARGE, read_by

OTHERS = (
    "insert into rota.steps (job, kind, name, number, position, main_branch, open)"
    " select -id, 'wait'::rota.entry_kind, 'go', 1, 1, true, true from rota.jobs"
    " union all select -id, 'step', 'a', 1, 2, true, false from rota.jobs",
    "insert into rota.signals (run, name, at, jobs)"
    " select -id, 'go', case when id %% 2 = 0 then rota.clock() end, array[-id] from rota.jobs",
    "update rota.sleeping set wake_at = 'infinity', signals = '{go}' where job %% 3 <> 0",
    "insert into rota.progress (job, claim, done) select -id, 1, 1 from rota.jobs",
    "insert into rota.logs (job, at, attempt, message) select -id, rota.clock(), 1, '' from rota.jobs",
    "insert into rota.checkpoints (job, state) select -id, '1' from rota.jobs",
)


@pytest.fixture
async def crowd(
    own_stage: Stage, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Stage, Connection]]:
    """Stage with connections used while the tables were nearly empty; the tables are large now."""
    stage = own_stage
    rows: int = request.node.callspec.params["rows"]
    for table in (*TABLES, *LARGE[4:]):
        await stage.sql(f"alter table rota.{table} set (autovacuum_enabled = off)")
    if request.param == "analysed empty":
        await stage.sql("analyze")
    ordinary = await stage.connect()
    await excess(stage, ordinary)
    await fill(stage, rows)
    for statement in OTHERS:
        await stage.sql(statement)
    if request.param == "analysed full":
        await stage.sql("analyze")
    yield stage, ordinary
    await stage.sql("truncate rota.queued, rota.sleeping, rota.outcomes, rota.claims, rota.jobs")


async def held(stage: Stage) -> tuple[int, list[ClaimedJob]]:
    """Claim a batch of jobs, with a few journal entries each."""
    worker = await stage.worker()
    started = await stage.start_several(BATCH)
    batch = await stage.claim(worker, BATCH, floor=started[0])
    assert batch.jobs == started
    entries = [
        (each, entry) for each in batch.members for entry in (step("a"), wait("go", position=2))
    ]
    await stage.run(steps.record(worker, entries))
    await stage.sql(
        "insert into rota.signals (run, name, at) select each, 'heard', rota.clock()"
        "  from unnest(%s::bigint[]) as each",
        batch.jobs,
    )
    return worker, batch.members


async def excess(stage: Stage, ordinary: Connection) -> dict[tuple[str, str], int]:
    """Run each statement often enough for its plan to be cached; return those that read too many rows."""
    worker, members = await held(stage)
    ids = [each.job for each in members]
    wrong: dict[tuple[str, str], int] = {}

    def each_with(entry: JournalEntry) -> list[tuple[ClaimedJob, JournalEntry]]:
        return [(each, entry) for each in members]

    many: dict[str, Query[Any]] = {
        "record": steps.record(worker, each_with(step("b", position=3))),
        "record once more": steps.record(worker, each_with(received_wait("go", position=2))),
        "record what stands": steps.record(worker, each_with(step("a"))),
        "of": steps.read(members),
        "expect": signals.register_waits(each_with(wait("go"))),
        "suspend for a signal": steps.suspend(worker, members, each_with(wait("go"))),
        "suspend for a time": steps.suspend(worker, members, each_with(sleep(60))),
        "clear": steps.restart(worker, members, ["{}"] * BATCH),
        "progress": steps.write_progress(
            [ProgressUpdate(each.claim, each.job, 1.0, None, None) for each in members]
        ),
        "log": steps.write_logs([(each, 0.0, "so") for each in members]),
    }
    # Single rows, as users and a step's own transaction send them.
    first = members[0]
    await stage.sql(
        "insert into rota.sleeping (job, wake_at, priority, queue, task, signals)"
        " values (-1e12, 'infinity', 0, 'default', 'work', '{go}')"
    )
    await stage.sql(
        "insert into rota.signals (run, name, jobs) values (%s, 'on', '{-1000000000000}')", ids[0]
    )
    few: dict[str, Query[Any]] = {
        "signal": signals.send(first.job, "go", "1"),
        "signal that wakes": signals.send(first.job, "on", "1"),
        "signal that is known": signals.send(first.job, "heard", "1"),
        "look": signals.read_payload(first.job, "heard"),
        "of one": steps.read([first]),
        "record one": steps.record(worker, [(first, step("b"))]),
        "fork": runs.fork_job(first.job, "go", None),
        "wake": timers.wake(BATCH),
    }
    for name, query in many.items():
        for scan in await explain(stage, query):
            if scan.kind == "Seq Scan":
                wrong[name, scan.table] = -1
    # The engine's plans are generic from the start; those of ordinary connections become so.
    for statements, on, most, often in (
        (many, stage.engine, 4 * BATCH, 1),
        (few, ordinary, 20, 7),
    ):
        for name, query in statements.items():
            for _ in range(often):
                read = await read_by(stage, query, on)
            wrong |= {(name, table): rows for table, rows in read.items() if rows > most}
    for table, column in (
        *(("claims", "jobs[1]"), ("jobs", "id"), ("sleeping", "job")),
        *(("steps", "job"), ("signals", "run")),
    ):
        await stage.sql(f"delete from rota.{table} where {column} = any(%s)", [*ids, -(10**12)])
    return wrong


@pytest.mark.parametrize(
    ("crowd", "rows"),
    scale(
        [("never analysed", 1000), ("analysed full", 1000)],
        [
            *(("never analysed", 1000), ("analysed full", 1000)),
            *(("analysed empty", 1000), ("analysed empty", 100_000)),
        ],
    ),
    indirect=["crowd"],
)
async def test_step_and_signal_statements_read_few_rows(
    crowd: tuple[Stage, Connection], rows: int
) -> None:
    assert await excess(*crowd) == {}
