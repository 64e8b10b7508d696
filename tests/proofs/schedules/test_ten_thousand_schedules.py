"""Ten thousand schedules: while none is due they cost nothing, and two hundred that are due at the same
time are started within a second.

The tests measure a worker in a separate process; `pytest -s` prints the figures.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from support import idle_costs
from support.fleet import wait_for_row
from support.idle_costs import Cost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SCHEDULES = 10_000
DUE = 200
WATCHED = 20.0
NOISE = 0.4
"""Tolerance in transactions a second: the times of polls vary, and autovacuum runs. `test_ticks` asserts
inside the worker that the scheduler runs no query."""

MODULE = """
from rota import Context, Rota

app = Rota()

@app.task
async def ring(ctx: Context) -> None: ...
"""

LAY = """
insert into rota.schedules (name, declared, kind, target, input, every, anchor, next, due)
select 's' || n, false, 'task', 'ring', '{}', 86400, rota.clock(), at, at
  from generate_series(%s::int, %s::int) as n,
       lateral (select rota.clock() + interval '1 h' + n * interval '1 s' as at) as at
"""

AT_ONCE = """
with soon as materialized (select rota.clock() + interval '3 s' as at)
update rota.schedules
   set anchor = soon.at, next = soon.at, due = soon.at
  from soon
 where name in (select 's' || n * 50 from generate_series(1, %s) as n)
"""

# Seconds from the tick until the job's code begins.
LATE = """
select percentile_cont(array[0.5, 0.99, 1.0]) within group (order by late)
  from (select extract(epoch from outcomes.at - ticks.tick)::float8 - outcomes.seconds as late
          from rota.ticks
          join rota.outcomes on outcomes.job = ticks.run) as each
"""
FIRED = "select max(extract(epoch from at - tick))::float8, count(distinct pid), count(*) from rota.ticks"


@pytest.fixture(autouse=True)
def use_schedule_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_costs, "MODULE", MODULE)
    monkeypatch.setattr(idle_costs, "WATCHED", WATCHED)


async def one(db: AsyncConnection[Any], query: str) -> Any:
    row = await (await db.execute(query.encode())).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]


async def test_schedules_not_due_cost_no_more_than_none(
    rota_dsn: str, db: AsyncConnection[Any], tmp_path: Path
) -> None:
    async with idle_costs.worker(rota_dsn, tmp_path) as pid:
        await asyncio.sleep(7)  # the worker's start-up queries have ended
        costs: dict[int, Cost] = {}
        await db.execute(LAY, (1, SCHEDULES))
        costs[SCHEDULES] = await idle_costs.measure_cost(db, pid)
        await db.execute("delete from rota.schedules where name <> 's1'")
        costs[1] = await idle_costs.measure_cost(db, pid)
        await db.execute("delete from rota.schedules")
        costs[0] = await idle_costs.measure_cost(db, pid)
    print("")
    for many, cost in costs.items():
        print(f"{many:6} schedules: {cost.transactions:.2f} transactions/s, {cost}")
    for cost in costs.values():
        assert cost.transactions <= costs[0].transactions + NOISE
    assert costs[SCHEDULES].processor <= costs[0].processor + 0.02
    assert costs[SCHEDULES].megabytes <= costs[0].megabytes + 3


@pytest.mark.parametrize("workers", [1, 2])
async def test_schedules_due_together_start_within_a_second(
    rota_dsn: str, db: AsyncConnection[Any], tmp_path: Path, workers: int
) -> None:
    await db.execute(LAY, (1, SCHEDULES))
    async with idle_costs.worker(rota_dsn, tmp_path):
        if workers == 1:
            await _measure(rota_dsn, db)
        else:
            async with idle_costs.worker(rota_dsn, tmp_path):
                await _measure(rota_dsn, db)


async def _measure(dsn: str, db: AsyncConnection[Any]) -> None:
    await asyncio.sleep(1)
    await db.execute(AT_ONCE, (DUE,))
    began = time.monotonic()
    await wait_for_row(dsn, "select count(*) from rota.outcomes", (DUE,), within=60)
    [p50, p99, last] = await one(db, LATE)
    fired, pids, many = await one(db, FIRED)
    print(
        f"\n{many} of {SCHEDULES} at one instant: fired after {fired:.3f} s by {pids}, begun after "
        f"p50 {p50:.3f} s, p99 {p99:.3f} s, all {last:.3f} s; done after "
        f"{time.monotonic() - began - 3:.2f} s"
    )
    assert many == DUE
    assert fired >= 0
    assert p99 <= 1.0
