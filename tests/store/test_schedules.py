"""Statements about schedules: due ticks, their records, and the next tick."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.engine.scheduling import deferred
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import FireResult, RunToStart
from rota.model.schedule import TickDecision
from rota.store import ticks, timers
from rota.store.ticks import ScheduleAdvance, TickRecord
from support.flows import DIAMOND, run_of
from support.schedule_firing import (
    ME,
    OTHER,
    SECOND,
    TICK,
    ended,
    fire,
    insert_schedule,
    recorded_ticks,
    reject_input,
    row,
    runs,
)
from support.stage import Stage


async def due(stage: Stage, limit: int = 200, name: str | None = None) -> list[str]:
    return [each.name for each in await stage.run(ticks.lock_due(["work"], (), name, limit))]


# Due schedules


async def test_lock_due_returns_due_schedules_oldest_first(stage: Stage) -> None:
    for name, late in {"b": 2, "c": 1, "a": 3}.items():
        await insert_schedule(stage, name, late=late * SECOND)
    await insert_schedule(stage, "not yet", late=-SECOND)
    await insert_schedule(stage, "paused", state="paused")
    await insert_schedule(stage, "ended", state="ended")
    await insert_schedule(stage, "disabled", state="disabled")
    await insert_schedule(stage, "foreign", target="elsewhere")

    assert await due(stage) == ["a", "b", "c"]
    assert await due(stage, limit=2) == ["a", "b"]
    assert await due(stage, name="c") == ["c"]
    assert await due(stage, name="not yet") == []
    assert await stage.run(ticks.due_names(["work"], limit=2)) == ["a", "b"]


@pytest.mark.usefixtures("stopped_clock")
async def test_next_due_ignores_unknown_targets(stage: Stage) -> None:
    assert await stage.run(ticks.next_due(["work"])) == [None]
    await insert_schedule(stage, "foreign", target="elsewhere")
    assert await stage.run(ticks.next_due(["work"])) == [None]
    await insert_schedule(stage, "later", late=-60 * SECOND)
    await insert_schedule(stage, "never", next=None, due=None)
    [rest] = await stage.run(ticks.next_due(["work"]))
    assert rest is not None
    assert 59 < rest <= 60
    await insert_schedule(stage, "now")
    [rest] = await stage.run(ticks.next_due(["work"]))
    assert rest is not None
    assert rest <= -0.5


@pytest.mark.usefixtures("stopped_clock")
async def test_wake_returns_seconds_until_next_schedule(stage: Stage) -> None:
    [woken] = await stage.run(timers.wake(10))
    assert woken.next_schedule_seconds is None
    await insert_schedule(stage, "paused", state="paused")
    await insert_schedule(stage, "foreign", target="elsewhere", late=-30 * SECOND)
    [woken] = await stage.run(timers.wake(10))
    assert woken.next_schedule_seconds is not None
    assert 29 < woken.next_schedule_seconds <= 30


# Recorded ticks


def marks(*seconds: int, first: int = 1, name: str = "beat") -> list[TickRecord]:
    return [
        TickRecord(name, TICK + second * SECOND, number, "skipped", "for a test")
        for number, second in enumerate(seconds, first)
    ]


async def test_record_tick_twice_keeps_the_first(stage: Stage) -> None:
    await insert_schedule(stage)
    assert len(await stage.run(ticks.record(marks(1, 2), ME))) == 2
    assert await stage.run(ticks.record(marks(2, 3, first=3), ("other", 2))) == [
        ("beat", TICK + 3 * SECOND)
    ]
    assert await stage.sql("select host, number from rota.ticks order by tick") == [
        ("here", 1),
        ("here", 2),
        ("other", 4),
    ]


async def test_record_tick_keeps_last_thousand_per_schedule(stage: Stage) -> None:
    await insert_schedule(stage)
    await insert_schedule(stage, "other")
    await stage.run(ticks.record(marks(1, 2, name="other"), ME))
    for begin in range(0, 3000, 600):
        await stage.run(ticks.record(marks(*range(begin, begin + 600), first=begin + 1), ME))
    # The ticks of the current statement are never deleted.
    await stage.run(ticks.record(marks(3000, first=3001), ME))
    count = "select count(*), min(number), max(number) from rota.ticks where schedule = %s"
    assert await stage.sql(count, "beat") == [(1000, 2002, 3001)]
    assert await stage.sql(count, "other") == [(2, 1, 2)]


async def test_record_tick_keeps_queued_tick_beyond_the_limit(stage: Stage) -> None:
    await insert_schedule(stage, queued=TICK)
    await stage.run(ticks.record(marks(0, 1), ME))
    await stage.run(ticks.record(marks(5000, first=5000), ME))
    assert await stage.sql("select tick from rota.ticks order by tick") == [
        TICK,
        TICK + 5000 * SECOND,
    ]


# Advance


async def test_advance_skips_schedules_changed_since_read(stage: Stage) -> None:
    await insert_schedule(stage, "still")
    await insert_schedule(stage, "moved")
    await insert_schedule(stage, "started", queued=TICK)
    found = await stage.run(ticks.lock_due(["work"]))
    await stage.sql("update rota.schedules set next = next + interval '1 s' where name = 'moved'")
    await stage.sql("update rota.schedules set queued = null where name = 'started'")

    moved = [
        ScheduleAdvance(each, TickDecision(next=TICK, due=TICK), 7, 5, TICK, None, 3)
        for each in sorted(found, key=lambda each: each.name)
    ]
    assert await stage.run(ticks.advance(moved)) == [1]

    assert await row(stage, "next, due, ticks, runs, missed", "still") == (TICK, TICK, 7, 5, 3)
    assert await row(stage, "last, ticks", "moved") == (None, 0)
    assert await row(stage, "ticks", "started") == 0


async def test_advance_without_next_tick_ends_unless_queued(stage: Stage) -> None:
    await insert_schedule(stage, "over")
    await insert_schedule(stage, "waits")
    found = {each.name: each for each in await stage.run(ticks.lock_due(["work"]))}
    over = ScheduleAdvance(found["over"], TickDecision(), 1, 1, TICK, 5, 0)
    waits = ScheduleAdvance(found["waits"], TickDecision(queued=TICK, due=TICK), 1, 1, TICK, 5, 0)
    assert await stage.run(ticks.advance([over, waits])) == [2]
    assert await row(stage, "state::text, run", "over") == ("ended", 5)
    assert await row(stage, "state::text, queued", "waits") == ("active", TICK)


# Outcomes of runs


async def test_record_outcomes_counts_failures_in_a_row(stage: Stage) -> None:
    await insert_schedule(stage)
    await ended(stage, "failed", "succeeded", "failed", "cancelled", "expired")
    [unsettled] = await stage.run(ticks.open_ticks())
    assert (unsettled.ended_schedules, unsettled.has_open) == (["beat"], True)

    [standing] = await stage.run(ticks.record_outcomes(["beat"]))

    assert (standing.is_paused, standing.open_runs) == (False, [])
    assert await row(stage, "failures, last_success is null, last_failure is null") == (
        2,
        False,
        False,
    )
    found = await stage.sql("select outcome::text, ended is null from rota.ticks order by tick")
    assert found == [
        (state, False) for state in ("failed", "succeeded", "failed", "cancelled", "expired")
    ]
    [unsettled] = await stage.run(ticks.open_ticks())
    assert (unsettled.ended_schedules, unsettled.has_open) == ([], False)


async def test_record_outcomes_pauses_after_accumulated_failures(stage: Stage) -> None:
    await insert_schedule(stage, pause_after=3, failures=2)
    await ended(stage, "failed")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.is_paused
    assert await row(stage, "state::text, reason") == ("paused", "3 failures in a row")
    assert not (await fire(stage)).started
    # Only once: a second statement has paused nothing.
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert not standing.is_paused


async def test_record_outcomes_success_resets_failures(stage: Stage) -> None:
    await insert_schedule(stage, pause_after=3, failures=2)
    await ended(stage, "succeeded")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert not standing.is_paused
    assert await row(stage, "failures, state::text") == (0, "active")


async def test_record_outcomes_removed_run_counts_as_ended(stage: Stage) -> None:
    """Otherwise the tick would stay open for ever."""
    await insert_schedule(stage)
    [id] = await ended(stage, "failed")
    await stage.sql("update rota.schedules set run = %s", id)
    await stage.sql("delete from rota.outcomes")
    await stage.sql("delete from rota.jobs")
    [unsettled] = await stage.run(ticks.open_ticks())
    assert unsettled.ended_schedules == ["beat"]
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.open_runs == []
    assert await stage.sql("select outcome, ended is null from rota.ticks") == [(None, False)]
    assert await row(stage, "failures") == 0
    [unsettled] = await stage.run(ticks.open_ticks())
    assert not unsettled.has_open


@pytest.mark.parametrize("place", ["queued", "sleeping", "claimed"])
async def test_record_outcomes_run_in_progress_is_open(stage: Stage, place: str) -> None:
    await insert_schedule(stage, every=1.0)
    fired = await fire(stage)
    [id] = fired.started.values()
    if place == "sleeping":
        await stage.retry(await stage.claim(await stage.worker()))
    elif place == "claimed":
        await stage.claim(await stage.worker())
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.open_runs == [id]
    [unsettled] = await stage.run(ticks.open_ticks())
    assert (unsettled.ended_schedules, unsettled.has_open) == ([], True)
    assert await row(stage, "run") == id


# Complete firing


async def test_fire_starts_run_records_tick_and_advances(stage: Stage) -> None:
    tick = await insert_schedule(stage)
    fired = await fire(stage)
    assert list(fired.started) == [("beat", tick)]
    assert (fired.handled, fired.has_more, fired.one_by_one, fired.queues) == (
        1,
        False,
        [],
        {"default"},
    )
    [id] = fired.started.values()
    found = "ticks, runs, run, last, next - last, due - next, state::text"
    assert await row(stage, found) == (
        *(1, 1, id, tick, timedelta(hours=1), timedelta(0), "active"),
    )
    said = "select tick, number, state, run, host, pid from rota.ticks"
    assert await stage.sql(said) == [(tick, 1, "started", id, *ME)]
    assert not (await fire(stage)).handled


async def test_fire_catch_up_all_starts_every_due_tick(stage: Stage) -> None:
    tick = await insert_schedule(
        stage, every=20.0, late=50 * SECOND, overlap="allow", catch_up="all"
    )
    await fire(stage)
    assert await runs(stage) == {("beat", tick + n * SECOND): 1 for n in (0, 20, 40)}
    assert await row(stage, "next") == tick + 60 * SECOND


@pytest.fixture
def no_deferral(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other instances' time to handle unsuitable schedules be over."""
    monkeypatch.setattr(deferred, "DEFER_SECONDS", 0.0)


async def refuse(stage: Stage) -> FireResult:
    """Fire with code that accepts no input of the schedule, after the time given to other instances."""
    deferred = DeferredSchedules()
    assert not (await fire(stage, "beat", targets={"work": reject_input}, misfits=deferred)).handled
    return await fire(stage, targets={"work": reject_input}, misfits=deferred)


async def test_fire_unsuitable_input_is_deferred_to_other_instances(stage: Stage) -> None:
    tick = await insert_schedule(stage)
    other = await insert_schedule(stage, "other")
    before = await row(stage, "next, due, ticks, runs, missed")
    deferred = DeferredSchedules()
    fired = await fire(stage, targets={"work": reject_input}, misfits=deferred)
    assert (fired.handled, list(fired.started)) == (1, [("other", other)])
    assert await recorded_ticks(stage) == []
    assert await row(stage, "next, due, ticks, runs, missed") == before
    assert deferred.deferred_names() == ["beat"]
    assert not (await fire(stage, targets={"work": reject_input}, misfits=deferred)).handled
    assert list((await fire(stage, who=OTHER)).started) == [("beat", tick)]


async def test_deferred_schedule_is_skipped_by_every_query(stage: Stage) -> None:
    await insert_schedule(stage)
    assert await stage.run(ticks.lock_due(["work"], ["beat"])) == []
    assert await stage.run(ticks.due_names(["work"], ["beat"])) == []
    assert await stage.run(ticks.next_due(["work"], ["beat"])) == [None]


@pytest.mark.usefixtures("no_deferral")
async def test_fire_input_unsuitable_everywhere_is_refused(stage: Stage) -> None:
    tick = await insert_schedule(stage)
    await refuse(stage)
    assert await recorded_ticks(stage) == [(tick, "refused", "there is no such argument")]
    found = "runs, ticks, next > rota.clock(), state::text"
    assert await row(stage, found) == (0, 1, True, "active")


@pytest.mark.usefixtures("no_deferral")
async def test_fire_several_unsuitable_ticks_are_refused_together(stage: Stage) -> None:
    tick = await insert_schedule(
        stage, every=20.0, late=50 * SECOND, overlap="allow", catch_up="all"
    )
    await refuse(stage)
    each = (tick + n * SECOND for n in (0, 20, 40))
    assert await recorded_ticks(stage) == [
        (tick, "refused", "there is no such argument") for tick in each
    ]


@pytest.mark.usefixtures("no_deferral")
async def test_fire_refused_tick_counts_as_no_run(stage: Stage) -> None:
    await insert_schedule(stage, max_runs=1)
    await refuse(stage)
    assert await row(stage, "runs, next > rota.clock(), state::text") == (0, True, "active")


@pytest.mark.usefixtures("no_deferral")
async def test_fire_after_refusal_defers_the_next_tick(stage: Stage) -> None:
    await insert_schedule(stage)
    deferred = DeferredSchedules()
    for _ in range(2):
        for seen in (False, True):
            fired = await fire(stage, targets={"work": reject_input}, misfits=deferred)
            assert bool(fired.handled) is seen
        await stage.sql("update rota.schedules set next = rota.clock(), due = rota.clock()")


@pytest.mark.usefixtures("no_deferral")
async def test_fire_queued_tick_with_unsuitable_input_is_refused(stage: Stage) -> None:
    tick = await insert_schedule(stage, overlap="queue_one", every=3600.0, run=await stage.start())
    await fire(stage)
    assert await recorded_ticks(stage) == [(tick, "queued", "the run before it has not ended")]
    [batch] = [await stage.claim(await stage.worker())]
    await stage.complete(batch)
    await stage.sql("update rota.schedules set due = rota.clock()")
    await refuse(stage)
    assert await recorded_ticks(stage) == [(tick, "refused", "there is no such argument")]
    assert await row(stage, "queued, runs") == (None, 0)


async def test_fire_flow_target_starts_the_whole_flow(stage: Stage) -> None:
    tick = await insert_schedule(stage)
    fired = await fire(stage, targets={"work": lambda *_: RunToStart(run_of(DIAMOND), ["default"])})
    [id] = fired.started.values()
    assert await stage.sql("select id from rota.runs") == [id]
    assert await recorded_ticks(stage) == [(tick, "started", None)]
