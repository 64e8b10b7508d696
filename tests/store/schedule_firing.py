"""Schedules inserted directly into the store, and fired without a worker."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql

from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import FireResult, RunToStart, tick_options
from rota.store.jobs import StartJob
from rota.store.schedules import ScheduleDefinition

from .stage import Connection, Stage

ME = ("here", 1)
OTHER = ("there", 2)
"""Two processes that fire."""

LATE = timedelta(seconds=0.5)

RUNS = """
select jobs.args ->> 'schedule', (jobs.options ->> 'tick')::timestamptz
  from rota.jobs
 where jobs.options is not null
"""


def make(due: ScheduleDefinition, tick: datetime, backfilled: bool) -> RunToStart:
    args = f'{{"schedule": "{due.name}"}}'
    start = StartJob("work", args, "default", options=tick_options(tick, backfilled))
    return RunToStart(start, ["default"])


TARGETS = {"work": make}


async def insert_schedule(
    stage: Stage, name: str = "beat", *, late: timedelta = LATE, **columns: Any
) -> datetime:
    """Insert a schedule that is already due; return its next tick."""
    [now] = await stage.sql("select rota.clock()")
    next: datetime = now - late
    row = {
        "name": name,
        "declared": False,
        "kind": "task",
        "target": "work",
        "input": "{}",
        "anchor": next,
        "next": next,
        "due": next,
        **columns,
    }
    if not {"cron", "at"} & set(columns):
        row.setdefault("every", 3600.0)
    statement = sql.SQL("insert into rota.schedules ({}) values ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(map(sql.Literal, row.values())),
    )
    await stage.watch.execute(statement)
    return next


async def fire(
    stage: Stage,
    name: str | None = None,
    who: tuple[str, int] = ME,
    targets: Any = TARGETS,
    misfits: DeferredSchedules | None = None,
) -> FireResult:
    """Fire as a scheduler does, on its own connection."""
    return await scheduling_fire.fire(
        stage.database, targets, who, misfits or DeferredSchedules(), name
    )


async def runs(stage: Stage) -> Counter[tuple[str, datetime]]:
    """Return the number of runs of each tick."""
    return Counter(await stage.sql(RUNS))


async def row(stage: Stage, columns: str, name: str = "beat", on: Connection | None = None) -> Any:
    [found] = await stage.sql(f"select {columns} from rota.schedules where name = %s", name, on=on)
    return found


async def recorded_ticks(stage: Stage, name: str = "beat") -> list[Any]:
    """Return the recorded ticks of a schedule."""
    return await stage.sql(
        "select tick, state, reason from rota.ticks where schedule = %s order by tick", name
    )
