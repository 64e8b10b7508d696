"""The search for due schedules reads only those that are due, in tables of any size.

As in `test_plans`: on tables that were never analysed, analysed while empty and then filled, and analysed
full. The statements of a firing transaction are explained on an ordinary connection, as they run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.model.schedule import TickDecision
from rota.store import ticks, timers
from rota.store.query import Query
from rota.store.ticks import ScheduleAdvance, TickRecord
from support.connection_plans import explain, read_by
from support.scale import scale
from support.stage import Connection, Stage

DUE = 50
OPEN = 50
TICK = datetime(2031, 1, 1, tzinfo=UTC)

FILL = """
insert into rota.schedules (name, declared, kind, target, input, every, anchor, next, due, run)
select 's' || n, false, 'task', 'work', '{}', 60, rota.clock(), at, at, n
  from generate_series(1, %(rows)s) as n, lateral (select rota.clock() + n * interval '1 min' as at) as at
"""

# Each schedule has past ticks; of some, the last run is open.
FILL_TICKS = """
insert into rota.ticks (schedule, tick, number, state, host, pid, run, outcome, ended)
select 's' || n, timestamptz '2030-01-01' + m * interval '1 min', m, 'started', 'h', 1, n * 10 + m,
       case when over then 'succeeded'::rota.outcome end, case when over then rota.clock() end
  from generate_series(1, %(rows)s) as n, generate_series(1, 3) as m,
       lateral (select m < 3 or n > 50) as past (over)
"""

# These have ended.
FILL_OTHERS = """
insert into rota.schedules (name, declared, kind, target, input, every, anchor, next, due, state)
select 'ended' || n, false, 'task', 'work', '{}', 60, rota.clock(), null, rota.clock() - n * interval '1 s',
       'ended'
  from generate_series(1, %(rows)s) as n
"""

LAY_DUE = """
insert into rota.schedules (name, declared, kind, target, input, every, anchor, next, due)
select 'due' || n, false, 'task', 'work', '{}', 60, rota.clock(), at, at
  from generate_series(1, %(rows)s) as n,
       lateral (select rota.clock() - n * interval '1 ms' as at) as at
"""


@pytest.fixture(params=["never analysed", "analysed empty", "analysed full"])
async def filled(own_stage: Stage, request: pytest.FixtureRequest) -> Stage:
    rows: int = request.node.callspec.params["rows"]
    stage = own_stage
    await stage.sql("set statement_timeout = 0")
    for table in ("schedules", "ticks", "outcomes", "jobs"):
        await stage.sql(f"alter table rota.{table} set (autovacuum_enabled = off)")
    if request.param == "analysed empty":
        await stage.sql("analyze")
    for statement in (FILL, FILL_TICKS, FILL_OTHERS):
        await stage.watch.execute(statement.encode(), {"rows": rows})
    if request.param == "analysed full":
        await stage.sql("analyze")
    return stage


async def check(stage: Stage, rows: int) -> None:
    plain = await stage.connect()
    schema = stage.schema

    # With every poll, also while no schedule is due: one row.
    poll = await explain(stage.engine, schema, timers.wake(100))
    assert not any(scan.kind == "Seq Scan" for scan in poll), poll
    assert read_by(poll)["schedules"] <= 2, poll
    async with plain.transaction(force_rollback=True):
        await stage.run(ticks.set_short_timeouts(), plain)
        await _check(plain, schema, "next", ticks.next_due(["work"]), 1)
        await _check(plain, schema, "names", ticks.due_names(["work"]), 0)
        await _check(plain, schema, "open", ticks.open_ticks(), 2 * OPEN + 1)

    await stage.watch.execute(LAY_DUE.encode(), {"rows": DUE})
    async with plain.transaction(force_rollback=True):
        await stage.run(ticks.set_short_timeouts(), plain)
        due = await stage.run(ticks.lock_due(["work"]), plain)
        names = [each.name for each in due]
        assert len(names) == DUE
        moved = [
            ScheduleAdvance(each, TickDecision(next=TICK, due=TICK), 1, 1, TICK, 1, 0)
            for each in due
        ]
        marks = [TickRecord(name, TICK, 1001, "started", None) for name in names]
        statements: dict[str, Query[Any]] = {
            "due": ticks.lock_due(["work"]),
            "due, by name": ticks.lock_due(["work"], (), names[0]),
            "settle": ticks.record_outcomes(
                [*names, *(f"s{n}" for n in range(1, min(rows, OPEN)))]
            ),
            "mark": ticks.record(marks, ("h", 1)),
            "started": ticks.record_runs([(name, TICK, 1) for name in names], ("h", 1)),
            "advance": ticks.advance(moved),
            "hold": ticks.lock(names),
            "put off": ticks.postpone({name: None for name in names}, 5.0),
        }
        for name, query in statements.items():
            # One read each to find a row, to lock it, and to read the outcome.
            await _check(plain, schema, name, query, 4 * (DUE + OPEN))


async def _check(on: Connection, schema: str, name: str, query: Query[Any], most: int) -> None:
    found = await explain(on, schema, query)
    assert not any(scan.kind == "Seq Scan" for scan in found), f"{name}: {found}"
    for table, read in read_by(found).items():
        assert read <= 2 * most, f"{name} read {read} rows of {table}: {found}"


@pytest.mark.parametrize("rows", scale([0, 1000], [0, 1000, 100_000]))
async def test_schedule_statements_read_few_rows_by_index(filled: Stage, rows: int) -> None:
    await check(filled, rows)
