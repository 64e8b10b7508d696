"""Sleeping jobs cost only rows, and jobs due at the same instant are woken in batches.

A worker process is measured from outside: its processor time, its memory and its statements on the server.
`pytest -s` prints the figures.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Context, Rota
from support.fleet import wait_for_row
from support.idle_costs import (
    _megabytes,
    measure_cost,
    worker,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ASLEEP = 100_000
DUE = 10_000
MOST_AT_ONCE = 1000


# Inserts jobs as if they had been started and had reached their sleep.
LAY = """
with begun as materialized (
    select nextval('rota.ids') as id, n from generate_series(1, %s) as n
), jobs as (
    insert into rota.jobs (id, priority, task, queue, args)
    select id, 0, 'doze', 'default', json_build_object('n', n) from begun
), steps as (
    insert into rota.steps (job, kind, name, number, position, main_branch, wake_at)
    select id, 'sleep', 'sleep', 1, 1, true, rota.clock() + interval '1 day' from begun
)
insert into rota.sleeping (job, wake_at, priority, attempt, crashes, queue, task)
select id, rota.clock() + interval '1 day', 0, 1, 0, 'default', 'doze' from begun
"""

# Logs how many sleeping jobs each statement deletes.
WATCH = """
create table public.woken (at timestamptz default clock_timestamp(), jobs int);
create function public.note_woken() returns trigger language plpgsql as
$$ begin
     insert into public.woken (jobs) select count(*) from gone having count(*) > 0;
     return null;
   end $$;
create trigger note_woken after delete on rota.sleeping referencing old table as gone
    for each statement execute function public.note_woken()
"""


# Makes all jobs and their steps due at the same time.
DUE_SOON = """
with soon as materialized (select now() + interval '5 s' as at),
changed as (update rota.sleeping set wake_at = soon.at from soon)
update rota.steps set wake_at = soon.at from soon
"""


async def test_sleeping_jobs_cost_only_rows(
    rota_dsn: str, db: AsyncConnection[Any], tmp_path: Path
) -> None:
    async with worker(rota_dsn, tmp_path) as pid:
        none = await measure_cost(db, pid)
        await db.execute(LAY, (ASLEEP,))
        many = await measure_cost(db, pid)
    async with worker(rota_dsn, tmp_path) as pid:
        await asyncio.sleep(1.5)
        fresh = _megabytes(pid)

    size = await (
        await db.execute(
            "select sum(pg_total_relation_size(each::regclass))::float8 / %s"
            " from unnest(array['rota.jobs', 'rota.steps', 'rota.sleeping']) as each",
            (ASLEEP,),
        )
    ).fetchone()
    assert size is not None
    print(f"\nnone: {none}\n{ASLEEP}: {many}\nstarted among them: {fresh:.1f} MB")
    print(f"{size[0]:.0f} bytes of tables and indexes each")
    assert many.transactions < none.transactions + 1
    assert many.processor < none.processor + 0.02
    assert max(many.megabytes, fresh) < none.megabytes + 5
    assert size[0] < 1000


async def test_sleeping_jobs_due_together_are_woken_in_batches(
    rota_dsn: str, db: AsyncConnection[Any], tmp_path: Path
) -> None:
    async with Rota(rota_dsn) as app, worker(rota_dsn, tmp_path):

        async def doze(ctx: Context, n: int) -> int:
            raise AssertionError("the producer does not work")

        task = app.task(doze)
        began = time.monotonic()
        await app.start_many([task.bind(n) for n in range(DUE)])
        await wait_for_row(rota_dsn, "select count(*) from rota.sleeping", (DUE,), within=60)
        laid = time.monotonic() - began

        # The jobs began to sleep one after the other; make them due at the same time.
        await db.execute(WATCH)
        await db.execute(DUE_SOON)
        await wait_for_row(rota_dsn, "select count(*) from rota.outcomes", (DUE,), within=60)

    async def ask(query: str) -> Any:
        return await (await db.execute(query.encode())).fetchone()

    due = "(select min(wake_at) from rota.steps)"
    first, last, woke = await ask(
        f"select extract(epoch from min(at) - {due})::float8,"
        f" extract(epoch from max(at) - {due})::float8, count(*) from woken"
    )
    most, total = await ask("select max(jobs), sum(jobs)::int from woken")
    p50, p99, ended = await ask(
        "select percentile_cont(0.5) within group (order by late),"
        "       percentile_cont(0.99) within group (order by late), max(late)"
        f" from (select extract(epoch from at - {due})::float8 as late from rota.outcomes) as each"
    )
    assert total == DUE
    assert await ask(
        "select count(*), max(attempt) from rota.outcomes where state = 'succeeded'"
    ) == (
        DUE,
        1,
    )
    print(
        f"\n{DUE} lay down in {laid:.1f} s; woken by {woke} statements of at most {most}, the first after "
        f"{first:.3f} s, the last after {last:.2f} s; done after p50 {p50:.2f} s, p99 {p99:.2f} s, "
        f"all {ended:.2f} s"
    )
    assert most <= MOST_AT_ONCE
    assert woke <= 2 * DUE / MOST_AT_ONCE
    assert -0.01 < first < 1
    assert ended < 15
