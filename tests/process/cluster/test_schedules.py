"""Four processes and fifty schedules of about a second, under faults: each tick starts exactly one run.

Processes are killed and frozen, the server is restarted and crashed, and its clock is stepped back an hour
and forward again, and finally an hour ahead. When the faults have ended, the runs are checked. Each nominal
tick has one run, and no run started early by the database's clock. Ticks without a run are exactly those
that the policy leaves out and the schedule counts as missed.

The clock is the server's own, stepped with libfaketime where that is installed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.fault_injection import (
    HOUR,
    ClockedServer,
    FaultInjector,
    WorkerProcesses,
    clocked_server,
    rows,
    worker_processes,
)
from support.fleet import wait_for_row
from support.programs.schedule_app import schedules
from support.scale import scale
from support.tick_safeguards import LAYERS, NO_KEY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TICKS = scale(300, 10_000)
BROKEN = scale(9.0, 20.0)
"""Seconds of each period of faults."""
FROZEN = scale(2.5, 6.0)
MILLISECOND = timedelta(milliseconds=1)

STARTED = """
select args ->> 'schedule', (options ->> 'tick')::timestamptz, jobs.id, ticks.at, outcomes.state::text,
       result ->> 0, (result ->> 1)::timestamptz
  from rota.jobs
  left join rota.ticks on ticks.schedule = args ->> 'schedule'
                      and ticks.tick = (options ->> 'tick')::timestamptz
                      and ticks.run = jobs.id
  left join rota.outcomes on outcomes.job = jobs.id
"""
STANDING = """
select name, every, cron, anchor, next, runs, missed, catch_up, at_most from rota.schedules
"""
LEFT = "select count(*) from rota.jobs where not exists (select from rota.outcomes where job = jobs.id)"
REPEATED = """
select exists (select from rota.jobs group by args ->> 'schedule', options ->> 'tick' having count(*) > 1)
"""
OVERDUE = """
select count(*) from rota.schedules where state = 'active' and due < rota.clock() - interval '1 s'
"""
FIRED = """
select count(distinct pid), count(*) filter (where pid <> before)
  from (select pid, lag(pid) over (partition by schedule order by tick) as before
          from rota.ticks where state = 'started') as each
"""


@dataclass(frozen=True, slots=True)
class FinalSchedule:
    """Final row of a schedule."""

    name: str
    every: float | None
    cron: str | None
    anchor: datetime
    next: datetime
    runs: int
    missed: int
    catch_up: str
    at_most: int

    @property
    def period(self) -> timedelta:
        if self.every is not None:
            return timedelta(seconds=self.every)
        assert self.cron is not None
        return timedelta(seconds=int(self.cron[2]))

    def nominal(self) -> list[datetime]:
        """Return all its nominal ticks, from its beginning up to but not including its next one."""
        tick = self.anchor + self.period
        if self.cron is not None:
            # The column `created` is read later, perhaps in the next second, so it cannot be used.
            tick = self.anchor.replace(microsecond=0)
            while tick <= self.anchor or tick.second % self.period.total_seconds():
                tick += timedelta(seconds=1)
        found = []
        while tick < self.next:
            found.append(tick)
            tick += self.period
        return found


def check(
    started: list[Any], standing: list[FinalSchedule], steps: list[tuple[datetime, timedelta]]
) -> list[str]:
    """Return the errors found in the runs."""
    wrong: list[str] = []
    runs: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for name, tick, run, at, state, *ran in started:
        runs[name, tick].append(run)
        if ran != [name, tick]:
            wrong.append(f"{name} {tick}: ran as {ran}")
        if at is None or at < tick:
            wrong.append(f"{name} {tick}: started at {at}")
        if state != "succeeded":
            wrong.append(f"{name} {tick}: run {run} is {state}")
    wrong += [f"{n} {tick}: runs {ids}" for (n, tick), ids in runs.items() if len(ids) > 1]
    ahead = [(at, at + by) for at, by in steps if by > HOUR - MILLISECOND]
    for each in standing:
        seen = {tick for name, tick in runs if name == each.name}
        nominal = each.nominal()
        strange = seen - set(nominal)
        wrong += [f"{each.name} {tick}: not one of its times" for tick in strange]
        missing = [tick for tick in nominal if tick not in seen]
        if (each.runs, each.missed) != (len(seen), len(missing)):
            wrong.append(
                f"{each.name}: says {each.runs} runs and {each.missed} missed, there are "
                f"{len(seen)} and {len(missing)}"
            )
        if each.catch_up == "all":
            wrong += [
                f"{each.name} {tick}: has no run"
                for tick in missing
                if not any(begin - SLACK <= tick <= end for begin, end in ahead)
            ]
    return wrong


SLACK = timedelta(seconds=5)
"""Uncertainty of the clock reading at a step; workers poll more often than that."""


async def read_runs(dsn: str) -> tuple[list[Any], list[FinalSchedule]]:
    return await rows(dsn, STARTED), [FinalSchedule(*row) for row in await rows(dsn, STANDING)]


async def finish_and_stop(site: ClockedServer, crew: WorkerProcesses) -> None:
    """Fire all due schedules, pause them, wait until every run has ended, and stop the workers."""
    await wait_for_row(site.dsn, OVERDUE, (0,), within=60)
    await pause(site.dsn)
    await wait_for_row(site.dsn, LEFT, (0,), within=60)
    await crew.leave()


async def pause(dsn: str) -> None:
    """Pause all schedules.

    Retry if the server is unreachable or a mutant, which locks in no order, causes a deadlock.
    """
    for _ in range(50):
        try:
            await rows(dsn, "update rota.schedules set state = 'paused' returning name")
        except psycopg.OperationalError:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the schedules could not be paused")


async def test_schedules_under_faults_start_each_tick_once(tmp_path: Path) -> None:
    async with clocked_server() as where:
        await _check_each_tick_once(where, tmp_path)


async def _check_each_tick_once(where: ClockedServer, notes: Path) -> None:
    async with worker_processes(where.dsn, notes) as those:
        await those.man(4)
        await wait_for_row(where.dsn, "select count(*) >= 50 from rota.jobs", (True,), within=60)
        breakage = FaultInjector(where, those, seed=7, longest=FROZEN)
        while True:
            await breakage.go_on(BROKEN)
            [[many]] = await rows(where.dsn, "select count(*) from rota.jobs")
            if many >= TICKS:
                break
        # The clock stays ahead; missed ticks are caught up as far as the policy allows.
        await where.set_clock(HOUR)
        await asyncio.sleep(2)
        await finish_and_stop(where, those)
        found, empty = those.looks()
        did = dict(those.did)
    started, standing = await read_runs(where.dsn)
    [[pids, changes]] = await rows(where.dsn, FIRED)
    print(
        f"\n{len(started)} ticks by {pids} processes, {changes} times by another than the one before; "
        f"{did}; {found} looks found something, {empty} came too late"
    )
    wrong = check(started, standing, where.steps)
    assert not wrong, "\n".join([f"{len(wrong)} things are wrong", *wrong[:20]])
    assert len(standing) == len(schedules())
    assert len(started) >= TICKS
    # The faults did happen.
    least = scale({"kills": 3, "freezes": 2}, {"kills": 40, "freezes": 40, "restarts": 10})
    for what, many in {"restarts": 2, "steps": 2, **least}.items():
        assert did[what] >= many, f"{what}: {did}"
    assert pids >= 4
    assert changes > len(started) / 100
    assert empty > 10
    assert "deadlock detected" not in where.log()


async def test_schedules_without_key_lock_and_comparison_repeat_ticks(
    rota_dsn: str, tmp_path: Path
) -> None:
    """Mutant M9. It needs no faults, only several workers."""
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute(NO_KEY)
    async with worker_processes(rota_dsn, tmp_path) as those:
        await those.man(4, mutant=list(LAYERS))
        await wait_for_row(rota_dsn, REPEATED, (True,), within=120)
        await pause(rota_dsn)
        await wait_for_row(rota_dsn, LEFT, (0,), within=60)
    started, standing = await read_runs(rota_dsn)
    twice = Counter((name, tick) for name, tick, *_ in started)
    assert max(twice.values()) > 1
    assert any("runs [" in each for each in check(started, standing, []))
