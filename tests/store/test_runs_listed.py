"""Runs are listed by looking where those of a state are: the same as looking through all, and cheaper."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from psycopg import sql

from rota.store import runs, views
from rota.store.query import positional

from . import flows
from .losses import quarantine
from .stage import Stage
from .test_plans import scans

STATES = [
    *("ready", "asleep", "running", "quarantined", "succeeded", "failed", "cancelled", "expired"),
    None,
]
MANY = 20_000

# What the view says of everything.
THROUGH_ALL = """
select state.run, state.name, state.is_flow, state.state
  from rota.run_state as state
 where state.parent is null
   and (%(state)s::text is null or state.state = %(state)s)
   and (%(task)s::text is null or state.name = %(task)s)
   and (%(queue)s::text is null or state.queue = %(queue)s)
   and state.run < %(before)s
 order by state.run desc
 limit %(limit)s
"""


async def fill(stage: Stage) -> None:
    """Runs of tasks and of flows in every state, among them jobs of flows in every state."""
    one: flows.Parents = {"a": []}
    for queue in ("default", "other"):
        await stage.start_several(3)
        await stage.start(queue=queue, delay=timedelta(hours=1))
        held = [await stage.held(3) for _ in range(4)]
        await stage.complete(held[0])
        await stage.finish(held[1], "failed", held[1].jobs[:2])
        await stage.finish(held[2], "expired", held[2].jobs[:1])
        await quarantine(stage, held[3])
        await stage.run(runs.cancel(await stage.start(queue=queue)))
        worker = await stage.worker()
        for state in ("succeeded", "failed", None):
            await flows.start(stage, one)
            batch = await flows.claim(stage, worker, names=["a"])
            if state is not None:
                await flows.end(stage, batch, state)
        await flows.call(stage, batch, 2)
        cancelled = await flows.start(stage, one)
        await stage.run(runs.cancel(cancelled.run))
        await flows.start(stage, flows.DIAMOND)


@pytest.mark.parametrize("state", STATES)
async def test_those_in_a_state_are_those_that_are(stage: Stage, state: str | None) -> None:
    await fill(stage)
    newest = await stage.one("select max(id) from rota.jobs")
    seen = 0
    for task in (None, "work", "f"):
        for queue in (None, "default", "other"):
            for before in (views.NEWEST, newest // 2):
                for limit in (2, 100):
                    params = {"task": task, "queue": queue, "state": state}
                    found = await stage.run(views.runs(**params, before=before, limit=limit))
                    cursor = await stage.watch.execute(
                        THROUGH_ALL.encode(), {**params, "before": before, "limit": limit}
                    )
                    told = [(each.run, each.name, each.is_flow, each.state) for each in found]
                    assert told == await cursor.fetchall()
                    seen += len(told)
    assert seen


async def explained(stage: Stage, state: str) -> Any:
    query = views.runs(state=state, limit=50)
    text, names = positional(query.statement, stage.schema)
    values = sql.SQL(", ").join(sql.Literal(query.params[name]) for name in names)
    await stage.watch.execute(b"prepare listed as " + text.encode(), prepare=False)
    cursor = await stage.watch.execute(
        sql.SQL("explain (analyze, format json) execute listed ({})").format(values), prepare=False
    )
    [[raw]] = await cursor.fetchall()
    await stage.watch.execute("deallocate listed")
    return (raw if isinstance(raw, list) else json.loads(raw))[0]["Plan"]


async def test_few_among_many_are_found_without_looking_through_all(own_stage: Stage) -> None:
    await own_stage.sql("set statement_timeout = 0")
    await own_stage.sql(
        "insert into rota.jobs (id, lane, task, queue, args)"
        " select nextval('rota.ids'), 0, 'work', 'default', '{}' from generate_series(1, %s)",
        MANY,
    )
    await own_stage.sql(
        "insert into rota.outcomes (job, state, attempt) select id, 'succeeded', 1 from rota.jobs"
    )
    await fill(own_stage)
    await own_stage.sql("analyze")
    for state in filter(None, STATES):
        plan = await explained(own_stage, state)
        found = list(scans(plan))
        read = sum(scan.read for scan in found if scan.table in ("jobs", "outcomes", "runs"))
        assert read < MANY / 20, f"{state}: {found}"
