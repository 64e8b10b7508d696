"""Schedules inserted directly into the store, and fired without a worker."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import sql

from rota.engine.notify.notifier import Notifier
from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import FireResult, RunToStart, tick_options
from rota.engine.scheduling.scheduler import Scheduler
from rota.engine.telemetry.event_bus import EventBus
from rota.errors import ArgumentError
from rota.store.jobs import StartJob
from rota.store.schedules import ScheduleDefinition
from support.stage import Connection, Stage

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


def scheduler(stage: Stage, targets: Any = TARGETS) -> Scheduler:
    database = stage.database
    return Scheduler(database, Notifier(database), EventBus(), 1, targets)


SECOND = timedelta(seconds=1)


TICK = datetime(2031, 1, 1, tzinfo=UTC)


async def ended(stage: Stage, *states: str, name: str = "beat") -> list[int]:
    """Insert ticks with runs that have ended in these states and are not recorded yet."""
    ids = await stage.start_several(len(states))
    for number, (id, state) in enumerate(zip(ids, states, strict=True), 1):
        await stage.sql(
            "insert into rota.ticks (schedule, tick, number, state, host, pid, run)"
            " values (%s, timestamptz '2031-01-01' + %s * interval '1 s', %s, 'started', 'h', 1, %s)",
            *(name, number, number, id),
        )
        await stage.sql("delete from rota.queued where job = %s", id)
        await stage.sql(
            "insert into rota.outcomes (job, state, attempt) values (%s, %s, 1)", id, state
        )
    return ids


def reject_input(due: ScheduleDefinition, *rest: Any) -> Any:
    """Refuse the input of schedule `beat`, as a task without that argument does."""
    if due.name == "beat":
        raise ArgumentError("there is no such argument")
    return make(due, *rest)
