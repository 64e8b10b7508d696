"""An error in one schedule does not affect other schedules."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from psycopg.errors import OperationalError

from rota.engine.scheduling import backfill, deferred, definitions
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import RunToStart
from rota.engine.scheduling.scheduler import Scheduler
from rota.errors import ArgumentError, DatabaseUnavailable, ScheduleNotFound
from rota.store import database, pg_errors, runs, ticks
from rota.store.schedules import ScheduleDefinition
from support.schedule_firing import (
    OTHER,
    fire,
    insert_schedule,
    make,
    recorded_ticks,
    row,
    scheduler,
)
from support.schedule_firing import runs as started
from support.stage import Stage

BAD: dict[str, dict[str, Any]] = {
    "cron": {"cron": "61 * * * *"},
    "zone": {"cron": "0 0 * * *", "tz": "Mars/Olympus"},
    "too often": {"every": 0.0},
    "no times": {"every": None, "at": None},
    "overlap": {"overlap": "perhaps"},
    "catch-up": {"catch_up": "sometimes"},
    "none at most": {"at_most": 0},
    "for ever": {"ends": "infinity"},  # the driver cannot represent it
    "before the flood": {"anchor": "4713-01-01 BC"},
}


@pytest.fixture
def no_deferral(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other instances' time to handle unsuitable schedules be over."""
    monkeypatch.setattr(deferred, "DEFER_SECONDS", 0.0)


@pytest.mark.usefixtures("no_deferral")
async def test_fire_unreadable_schedules_are_postponed_alone(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for name, columns in BAD.items():
        await insert_schedule(stage, name, late=timedelta(seconds=9), **columns)
    good = {(f"s{n}", await insert_schedule(stage, f"s{n}")): 1 for n in range(20)}

    here = scheduler(stage)
    with caplog.at_level(logging.ERROR, "rota"):
        assert await here.fire()
        assert await started(stage) == good
        assert await here.fire()

    for name in BAD:
        found = "state::text, reason is not null, due > rota.clock() + interval '50 s', ticks"
        assert await row(stage, found, name) == ("active", True, True, 0), name
        assert any(repr(name) in record.getMessage() for record in caplog.records)
    # They are postponed.
    assert not await here.fire()


async def test_fire_unreadable_schedule_does_not_roll_back_the_rest(stage: Stage) -> None:
    await insert_schedule(stage, "bad", every=0.0)
    tick = await insert_schedule(stage)
    fired = await fire(stage)
    assert (list(fired.started), fired.handled) == ([("beat", tick)], 1)


async def test_fire_unreadable_schedule_is_deferred_to_other_instances(stage: Stage) -> None:
    """One machine lacks a time zone, for example."""
    tick = await insert_schedule(stage, tz="Mars/Olympus")
    deferred = DeferredSchedules()
    assert not (await fire(stage, misfits=deferred)).handled
    assert await row(stage, "reason, due") == (None, tick)
    assert deferred.deferred_names() == ["beat"]
    await stage.sql("update rota.schedules set tz = 'UTC'")  # as on a machine that has the zone
    assert list((await fire(stage, who=OTHER)).started) == [("beat", tick)]


@pytest.mark.usefixtures("no_deferral")
async def test_fire_repaired_schedule_continues_at_its_tick(stage: Stage) -> None:
    tick = await insert_schedule(stage, every=0.0)
    here = scheduler(stage)
    for _ in range(2):
        await here.fire()
    assert "every" in await row(stage, "reason")
    await stage.sql("update rota.schedules set every = 3600, due = rota.clock()")
    assert await scheduler(stage).fire()
    assert await started(stage) == {("beat", tick): 1}
    assert await row(stage, "reason") is None


async def test_fire_rejected_run_postpones_only_its_schedule(stage: Stage) -> None:
    def careless(due: ScheduleDefinition, tick: datetime, backfilled: bool) -> RunToStart:
        made = make(due, tick, backfilled)
        bad = due.name == "bad"
        return RunToStart(msgspec.structs.replace(made.start, args="{"), []) if bad else made

    tick = await insert_schedule(stage, "bad")
    good = {(f"s{n}", await insert_schedule(stage, f"s{n}")): 1 for n in range(5)}
    assert await scheduler(stage, {"work": careless}).fire()
    assert await started(stage) == good
    assert await recorded_ticks(stage, "bad") == []
    assert "json" in await row(stage, "reason", "bad")
    assert await row(stage, "next", "bad") == tick


async def test_fire_lost_database_postpones_no_schedule(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No schedule is postponed or started, and the loop retries."""
    tick = await insert_schedule(stage)

    def away(*_: Any) -> Any:
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(ticks, "advance", away)
        with pytest.raises(DatabaseUnavailable):
            await scheduler(stage).fire()
    assert await row(stage, "reason, next, ticks") == (None, tick, 0)
    assert await started(stage) == {}
    assert await scheduler(stage).fire()


# Many ticks


@pytest.fixture
def no_time_limits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a transaction take as long as this machine needs."""
    limit = "idle_in_transaction_session_timeout"
    monkeypatch.setitem(database._SESSION_SETTINGS, limit, "0")
    stage.database.settings = replace(stage.database.settings, statement_timeout=3600.0)


@pytest.mark.usefixtures("no_time_limits")
async def test_fire_long_absence_is_caught_up_in_several_transactions(stage: Stage) -> None:
    """Two weeks of ticks, five seconds apart, of several schedules."""
    absence = timedelta(days=14)
    for n in range(4):
        name = f"s{n}"
        await insert_schedule(stage, name, every=5.0, late=absence, catch_up="all", at_most=1000)
    await insert_schedule(stage, "latest", every=5.0, late=absence)
    sizes = []
    while (fired := await fire(stage)).handled:
        sizes.append(len(fired.started))
        assert fired.has_more is (sum(sizes) < 4001)
    assert sum(sizes) == 4001
    assert max(sizes) <= 3000
    assert set((await started(stage)).values()) == {1}
    assert await row(stage, "runs, missed", "latest") == (1, 14 * 24 * 720)
    assert await row(stage, "runs, missed", "s0") == (1000, 14 * 24 * 720 - 999)
    assert await stage.sql("select count(*) from rota.ticks group by schedule order by 1") == [
        *(1, 1000, 1000, 1000, 1000),
    ]


# Cancelled runs


async def running(stage: Stage, name: str = "beat") -> int:
    """Create a schedule with overlap "cancel_running" and a held last run; return the run's claim."""
    run = await stage.start()
    batch = await stage.claim(await stage.worker(), 1)
    assert batch.jobs == [run]
    await insert_schedule(stage, name, overlap="cancel_running", run=run)
    return batch.id


async def test_fire_cancel_running_cancels_and_starts_one_by_one(
    stage: Stage,
) -> None:
    await running(stage, "one")
    await running(stage, "other")
    fired = await fire(stage)
    assert (fired.handled, fired.started, sorted(fired.one_by_one)) == (0, {}, ["one", "other"])
    assert await stage.sql("select count(*) from rota.cancels") == [0]

    assert await scheduler(stage).fire()
    assert len(await started(stage)) == 2
    assert await stage.sql("select count(*) from rota.cancels") == [2]


async def test_fire_cancel_running_with_locked_claim_is_postponed(stage: Stage) -> None:
    claim = await running(stage)
    tick = await insert_schedule(stage, "other")
    holder = await stage.connect()
    async with holder.transaction():
        await stage.sql("select from rota.claims where id = %s for update", claim, on=holder)
        trying = stage.meanwhile(scheduler(stage).fire())
        # The other schedule does not wait for it.
        async with asyncio.timeout(60):
            while not await started(stage):
                await asyncio.sleep(0.01)
        assert await started(stage) == {("other", tick): 1}
        assert await trying
        assert await row(stage, "reason, due > rota.clock() + interval '2 s'") == (None, True)
    await stage.sql("update rota.schedules set due = rota.clock() where name = 'beat'")
    assert await scheduler(stage).fire()
    assert len(await started(stage)) == 2


# All moves at once


class StressLoad:
    """Sessions that fire, record outcomes, run jobs and change schedules at random for a while."""

    NAMES = tuple(f"s{n:02}" for n in range(12))

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.database = stage.database
        self.chance = random.Random(seed)
        self.moves = 0
        self.waited = 0

    def definition(self, name: str) -> ScheduleDefinition:
        number = self.NAMES.index(name)
        overlap = ("skip", "queue_one", "cancel_running", "allow")[number % 4]
        catch_up = ("all", "latest", "none")[number % 3]
        return ScheduleDefinition(
            *(name, True, "task", "work", b"{}", None, None, "UTC", 0.1, None),
            *(overlap, catch_up, 50, None, 0.0, None, None, None, None, None),
        )

    async def session(self, until: float) -> None:
        fires = scheduler(self.stage)
        worker = await self.stage.worker()
        on = await self.stage.connect(engine=True)
        while time.monotonic() < until:
            try:
                await self._move(fires, worker, on)
                self.moves += 1
            except OperationalError as error:
                if pg_errors.sqlstate(error) == "40P01" or not pg_errors.is_transient(error):
                    raise
                self.waited += 1

    async def _move(self, fires: Scheduler, worker: int, on: Any) -> None:
        name, database = self.chance.choice(self.NAMES), self.database
        words = ["fire", "sweep", "work", "pause", "trigger", "backfill", "declare", "cancel"]
        try:
            match self.chance.choices(words, [8, 3, 6, 1, 1, 1, 1, 2])[0]:
                case "fire":
                    await fires.fire()
                case "sweep":
                    await fires._sweep()
                case "work":
                    await self._work(worker, on)
                case "pause":
                    await definitions.pause(database, name, "in a storm")
                    await definitions.resume(database, name)
                case "trigger":
                    await backfill.trigger(database, name, self._by_hand)
                case "backfill":
                    now = await self.stage.one("select rota.clock()")
                    begin = now - timedelta(seconds=0.5)
                    async for _ in backfill.backfill(database, name, begin, now, self._by_hand):
                        pass
                case "declare":
                    some = self.chance.sample(self.NAMES, 10)
                    await definitions.declare(
                        database, [self.definition(each) for each in some], ["work"]
                    )
                case "cancel":
                    run = await row(self.stage, "run", name, on)
                    if run is not None:
                        await self.stage.run(runs.cancel(run), on)
        except (ScheduleNotFound, ArgumentError):
            pass

    async def _work(self, worker: int, on: Any) -> None:
        batch = await self.stage.claim(worker, 5, on=on)
        if batch.jobs:
            await asyncio.sleep(self.chance.uniform(0, 0.05))
            await self.stage.complete(batch, on=on)

    def _by_hand(self, definition: ScheduleDefinition) -> backfill.TickFactory:
        def making(tick: datetime, backfilled: bool) -> RunToStart:
            due: Any = definition
            return make(due, tick, backfilled)

        return making


@pytest.mark.parametrize("seed", [1, 2])
async def test_schedule_stress_has_no_deadlock_and_no_duplicate_runs(
    own_stage: Stage, seed: int
) -> None:
    storm = StressLoad(own_stage, seed)
    everything = [storm.definition(name) for name in storm.NAMES]
    await definitions.declare(own_stage.database, everything, ["work"])
    found: dict[Any, int] = {}
    for _ in range(10):
        until = time.monotonic() + 2.5
        await asyncio.gather(*(storm.session(until) for _ in range(5)))
        found = await started(own_stage)
        if len(found) > 100:
            break
    print(f"\n{storm.moves} moves, {storm.waited} times somebody was in the way, {len(found)} runs")
    assert set(found.values()) == {1}
    assert len(found) > 100
    assert await own_stage.sql(
        "select deadlocks from pg_stat_database where datname = current_database()"
    ) == [0]
    # The recorded ticks and the started runs agree.
    assert await own_stage.sql(UNMATCHED) == []


UNMATCHED = """
select schedule, tick, run
  from rota.ticks
 where (state = 'started') <> (run is not null)
    or (run is not null and not exists (select from rota.jobs where jobs.id = ticks.run))
"""
