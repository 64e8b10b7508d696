"""Combinations in one schedule: a repeated tick, overlapping runs, an unsuitable input while a run is
open, and more jobs than one transaction starts."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from rota.engine.scheduling import deferred, definitions
from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import RunToStart
from rota.errors import DatabaseUnavailable, ScheduleNotFound
from rota.model.settings import Settings
from rota.store import ticks
from rota.store.database import Database
from rota.store.read import schedules as read_schedules
from rota.store.schedules import ScheduleDefinition
from rota.testing.proxy.connection import CutPoint
from rota.testing.proxy.proxy import Proxy
from support.flows import DIAMOND, run_of
from support.schedule_firing import (
    OTHER,
    SECOND,
    TICK,
    ended,
    fire,
    insert_schedule,
    make,
    recorded_ticks,
    reject_input,
    row,
    runs,
    scheduler,
)
from support.stage import Batch, Stage

HOUR = timedelta(hours=1)


async def complete_queued(stage: Stage) -> None:
    """Complete all queued jobs."""
    await stage.complete(await stage.claim(await stage.worker()))


async def fail_queued(stage: Stage) -> None:
    await complete_queued(stage)
    await stage.sql("update rota.outcomes set state = 'failed'")


async def due_again(stage: Stage, tick: datetime) -> None:
    """Make a tick due a second time, as after the clock was set back and an operator resumed the
    schedule."""
    await stage.sql("update rota.schedules set next = %s, due = %s", tick, tick)


# Repeated ticks


async def test_schedule_repeated_tick_is_not_queued_again(stage: Stage) -> None:
    tick = await insert_schedule(stage, overlap="queue_one")
    await fire(stage)
    await due_again(stage, tick)
    await fire(stage)
    assert await row(stage, "queued, next, due") == (None, tick + HOUR, tick + HOUR)
    await complete_queued(stage)
    await stage.sql("update rota.schedules set due = rota.clock()")
    await fire(stage)
    assert await runs(stage) == {("beat", tick): 1}
    assert await recorded_ticks(stage) == [(tick, "started", None)]


async def test_schedule_repeated_tick_cancels_no_run(stage: Stage) -> None:
    tick = await insert_schedule(stage, overlap="cancel_running")
    await fire(stage)
    await due_again(stage, tick)
    fired = await fire(stage, "beat")
    assert (fired.handled, fired.started) == (1, {})
    assert await row(stage, "next") == tick + HOUR
    assert await stage.sql("select state::text from rota.outcomes") == []
    assert await stage.sql("select job from rota.cancels") == []


# More jobs than one transaction starts


def diamond(due: ScheduleDefinition, tick: datetime, backfilled: bool) -> RunToStart:
    return RunToStart(run_of(DIAMOND), ["default"])


FLOW = {"work": diamond}
SIZE = 4


async def test_schedule_catch_up_is_limited_to_one_transaction(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_fire, "MAX_BATCH_JOBS", 3 * SIZE)
    tick = await insert_schedule(
        stage, every=60.0, late=10.5 * 60 * SECOND, overlap="allow", catch_up="all"
    )
    fired = await fire(stage, targets=FLOW)
    assert list(fired.started) == [("beat", tick + n * 60 * SECOND) for n in (8, 9, 10)]
    assert await row(stage, "runs, missed") == (3, 8)
    assert not (await fire(stage, targets=FLOW)).handled


async def test_schedule_run_larger_than_a_batch_is_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_fire, "MAX_BATCH_JOBS", SIZE - 1)
    tick = await insert_schedule(
        stage, every=60.0, late=90 * SECOND, overlap="allow", catch_up="all"
    )
    assert list((await fire(stage, targets=FLOW)).started) == [("beat", tick + 60 * SECOND)]


async def test_fire_more_schedules_than_a_batch_uses_several_transactions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_fire, "MAX_BATCH_JOBS", 2 * SIZE)
    for n in range(5):
        await insert_schedule(stage, f"s{n}")
    sizes = []
    while (fired := await fire(stage, targets=FLOW)).handled:
        sizes.append((len(fired.started), fired.has_more))
    assert sizes == [(2, True), (2, True), (1, False)]


def wait_until_ended(dsn: str, session: int) -> None:
    """Block this thread until the server has ended the session."""
    deadline = time.monotonic() + 60
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute(
            "select 1 from pg_stat_activity where pid = %s", [session]
        ).fetchone():
            assert time.monotonic() < deadline
            time.sleep(0.01)


async def test_schedule_slow_target_is_postponed_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends an idle transaction that holds schedules."""
    plans = scheduling_fire._FireTransaction._plans
    transactions: list[scheduling_fire._FireTransaction] = []

    async def noted(self: scheduling_fire._FireTransaction, *args: Any, **more: Any) -> Any:
        transactions.append(self)
        return await plans(self, *args, **more)

    def slow(due: ScheduleDefinition, *rest: Any) -> RunToStart:
        if due.name == "slow":
            session = transactions[-1]._connection.pgconn
            # Set here, because the timeout also applies between two statements.
            session.exec_(b"set local idle_in_transaction_session_timeout = '50ms'")
            wait_until_ended(stage.dsn, session.backend_pid)
        return make(due, *rest)

    monkeypatch.setattr(scheduling_fire._FireTransaction, "_plans", noted)
    await insert_schedule(stage, "slow", late=9 * SECOND)
    good = {(f"s{n}", await insert_schedule(stage, f"s{n}")): 1 for n in range(3)}
    seeing = scheduler(stage, {"work": slow})
    assert await seeing.fire()
    assert await runs(stage) == good
    found = "reason is not null, due > rota.clock() + interval '3 s', due > rota.clock() + interval '50 s'"
    # The first time the process may have been stopped; the second time the schedule is the cause.
    assert await row(stage, found, "slow") == (False, True, False)
    await stage.sql("update rota.schedules set due = rota.clock() where name = 'slow'")
    assert await seeing.fire()
    assert await row(stage, found, "slow") == (True, True, True)


# Unsuitable inputs


async def test_schedule_each_unsuitable_tick_is_deferred_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another instance started the tick before, so it is there. That was longer ago than DEFER_SECONDS."""
    monkeypatch.setattr(deferred, "DEFER_SECONDS", 0.0)
    tick = await insert_schedule(stage, late=9 * SECOND)
    here = DeferredSchedules()
    for _ in range(3):
        assert not (await fire(stage, targets={"work": reject_input}, misfits=here)).handled
        assert list((await fire(stage, who=OTHER)).started) == [("beat", tick)]
        await complete_queued(stage)
        tick += SECOND
        await due_again(stage, tick)


async def test_schedule_refused_tick_cancels_no_open_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred, "DEFER_SECONDS", 0.0)
    first = await insert_schedule(stage, overlap="cancel_running")
    await fire(stage)
    await due_again(stage, first + SECOND / 10)
    here = scheduler(stage, {"work": reject_input})
    for _ in range(2):
        await here.fire()
    assert await recorded_ticks(stage) == [
        (first, "started", None),
        (first + SECOND / 10, "refused", "there is no such argument"),
    ]
    assert await stage.sql("select job from rota.cancels") == []
    assert await stage.sql("select state::text from rota.outcomes") == []


# Backfilled ticks


async def test_schedule_backfilled_runs_do_not_count_as_failures(stage: Stage) -> None:
    await insert_schedule(stage, pause_after=3, failures=1)
    await ended(stage, "failed", "failed", "succeeded", "failed")
    await stage.sql("update rota.ticks set backfilled = true")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert not standing.is_paused
    assert await row(stage, "failures, last_success, last_failure, state::text") == (
        *(1, None, None, "active"),
    )
    assert await stage.sql("select count(*) from rota.ticks where ended is null") == [0]


async def test_schedule_failures_are_counted_across_backfilled_runs(stage: Stage) -> None:
    await insert_schedule(stage, pause_after=2)
    await ended(stage, "failed", "succeeded", "failed", "failed")
    await stage.sql("update rota.ticks set backfilled = true where number in (2, 4)")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.is_paused
    assert await row(stage, "reason") == "2 failures in a row"


# Several open runs


async def start_runs(stage: Stage, many: int, **columns: Any) -> list[Batch]:
    """Create a schedule with this many runs, each held by a worker; only the last is done."""
    batches = []
    await insert_schedule(stage, **columns)
    for number in range(1, many + 1):
        batches.append(await stage.held(1))
        await stage.sql(
            "insert into rota.ticks (schedule, tick, number, state, host, pid, run)"
            " values ('beat', %s, %s, 'started', 'h', 1, %s)",
            *(TICK + number * SECOND, number, batches[-1].jobs[0]),
        )
    await stage.sql("update rota.schedules set run = %s", batches[-1].jobs[0])
    await stage.complete(batches[-1])
    return batches


async def test_schedule_open_run_before_the_last_prevents_start(stage: Stage) -> None:
    first, _ = await start_runs(stage, 2)
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.open_runs == first.jobs
    assert not (await fire(stage)).started
    await stage.complete(first)
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.open_runs == []


async def test_schedule_last_run_without_tick_is_open(stage: Stage) -> None:
    """A thousand ticks were skipped while the run was open."""
    await insert_schedule(stage)
    await fire(stage)
    run = await row(stage, "run")
    await stage.sql("delete from rota.ticks")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.open_runs == [run]


async def test_schedule_tick_of_open_run_is_kept_beyond_limit(
    stage: Stage,
) -> None:
    """Otherwise the run's outcome would not be recorded."""
    await insert_schedule(stage, every=1.0, pause_after=1)
    await fire(stage)
    run = await row(stage, "run")
    await stage.sql(
        "update rota.schedules set ticks = 1500, due = rota.clock(), next = rota.clock()"
    )
    await fire(stage)
    assert await stage.sql("select run from rota.ticks order by tick") == [run, None]
    await fail_queued(stage)
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.is_paused
    assert await row(stage, "failures, state::text") == (1, "paused")


async def test_schedule_retried_run_that_succeeds_resets_failures(stage: Stage) -> None:
    tick = await insert_schedule(stage, pause_after=3)
    await fire(stage)
    run = await row(stage, "run")
    await fail_queued(stage)
    await stage.run(ticks.record_outcomes(["beat"]))
    assert await row(stage, "failures") == 1
    await stage.sql("select rota.retry(%s)", run)
    [seen] = await stage.run(read_schedules.ticks("beat", 1))
    assert (seen.planned, seen.outcome) == (tick, None)
    await stage.complete(await stage.claim(await stage.worker()))
    [seen] = await stage.run(read_schedules.ticks("beat", 1))
    assert seen.outcome == "succeeded"
    await stage.run(ticks.record_outcomes(["beat"]))
    assert await row(stage, "failures, last_success is not null") == (0, True)


async def test_schedule_backfilled_open_runs_do_not_prevent_start(stage: Stage) -> None:
    await start_runs(stage, 3)
    await stage.sql("update rota.ticks set backfilled = true")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.open_runs == []
    assert (await fire(stage)).started


async def test_schedule_cancel_running_cancels_each_run_in_own_transaction(
    stage: Stage,
) -> None:
    first, second, third, _ = await start_runs(stage, 4, overlap="cancel_running")
    holder, other = await stage.connect(), await stage.connect()
    lock = "select from rota.claims where id = %s for update"
    asked = "select job from rota.cancels order by job"
    async with holder.transaction():
        await stage.sql(lock, third.id, on=holder)
        trying = stage.meanwhile(scheduler(stage).fire())
        async with asyncio.timeout(60):
            while await stage.sql(asked) != [*first.jobs, *second.jobs]:
                await asyncio.sleep(0.01)
        # The transaction that waits for the third claim holds neither of the other two.
        for batch in (first, second):
            await stage.sql(f"{lock} nowait", batch.id, on=other)
        assert await runs(stage) == {}
    assert await trying
    async with asyncio.timeout(60):
        while not await runs(stage):
            await stage.sql("update rota.schedules set due = rota.clock() where due <> next")
            await scheduler(stage).fire()
    assert await stage.sql(asked) == [*first.jobs, *second.jobs, *third.jobs]
    assert len(await runs(stage)) == 1


async def test_schedule_cancel_running_with_locked_run_starts_nothing(stage: Stage) -> None:
    first, *_ = await start_runs(stage, 3, overlap="cancel_running")
    holder = await stage.connect()
    async with holder.transaction():
        await stage.sql("select from rota.claims where id = %s for update", first.id, on=holder)
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            await fire(stage, "beat")
        assert await row(stage, "ticks, next = due") == (0, True)


# Lost answers


@pytest.mark.parametrize("where", ["before", "sent", "answered"])
async def test_schedule_delete_with_lost_answer_deletes_once(stage: Stage, where: CutPoint) -> None:
    await insert_schedule(stage)
    with Proxy(stage.dsn) as proxy:
        database = Database(proxy.dsn, Settings())
        try:
            proxy.cut(where, hold_seconds=0.3)
            await definitions.delete(database, "beat")
            assert proxy.wait_for_cuts()
            with pytest.raises(ScheduleNotFound):
                await definitions.delete(database, "beat")
        finally:
            await database.close()
    assert await stage.sql("select name from rota.schedules") == []
