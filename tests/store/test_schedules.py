"""Statements about schedules: due ticks, their records, and the next tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.engine.scheduling import deferred
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import FireResult, RunToStart
from rota.errors import ArgumentError
from rota.model.schedule import TickDecision
from rota.store import ticks, timers
from rota.store.ticks import ScheduleAdvance, TickRecord

from .flows import DIAMOND, run_of
from .stage import Stage
from .ticking import ME, OTHER, fire, lay, make, row, runs, told

SECOND = timedelta(seconds=1)
TICK = datetime(2031, 1, 1, tzinfo=UTC)


async def due(stage: Stage, limit: int = 200, name: str | None = None) -> list[str]:
    return [each.name for each in await stage.run(ticks.lock_due(["work"], (), name, limit))]


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


# Due schedules


async def test_what_is_due_comes_the_first_first(stage: Stage) -> None:
    for name, late in {"b": 2, "c": 1, "a": 3}.items():
        await lay(stage, name, late=late * SECOND)
    await lay(stage, "not yet", late=-SECOND)
    await lay(stage, "paused", state="paused")
    await lay(stage, "ended", state="ended")
    await lay(stage, "disabled", state="disabled")
    await lay(stage, "foreign", target="elsewhere")

    assert await due(stage) == ["a", "b", "c"]
    assert await due(stage, limit=2) == ["a", "b"]
    assert await due(stage, name="c") == ["c"]
    assert await due(stage, name="not yet") == []
    assert await stage.run(ticks.due_names(["work"], limit=2)) == ["a", "b"]


async def test_when_the_next_one_is_due_of_those_known_here(stage: Stage) -> None:
    assert await stage.run(ticks.next_due(["work"])) == [None]
    await lay(stage, "foreign", target="elsewhere")
    assert await stage.run(ticks.next_due(["work"])) == [None]
    await lay(stage, "later", late=-60 * SECOND)
    await lay(stage, "never", next=None, due=None)
    [rest] = await stage.run(ticks.next_due(["work"]))
    assert rest is not None
    assert 59 < rest <= 60
    await lay(stage, "now")
    [rest] = await stage.run(ticks.next_due(["work"]))
    assert rest is not None
    assert rest <= -0.5


async def test_a_poll_is_told_when_the_next_one_is_due_of_all(stage: Stage) -> None:
    [woken] = await stage.run(timers.wake(10))
    assert woken.next_schedule_seconds is None
    await lay(stage, "paused", state="paused")
    await lay(stage, "foreign", target="elsewhere", late=-30 * SECOND)
    [woken] = await stage.run(timers.wake(10))
    assert woken.next_schedule_seconds is not None
    assert 29 < woken.next_schedule_seconds <= 30


# Recorded ticks


def marks(*seconds: int, first: int = 1, name: str = "beat") -> list[TickRecord]:
    return [
        TickRecord(name, TICK + second * SECOND, number, "skipped", "for a test")
        for number, second in enumerate(seconds, first)
    ]


async def test_a_tick_is_written_down_once(stage: Stage) -> None:
    await lay(stage)
    assert len(await stage.run(ticks.record(marks(1, 2), ME))) == 2
    assert await stage.run(ticks.record(marks(2, 3, first=3), ("other", 2))) == [
        ("beat", TICK + 3 * SECOND)
    ]
    assert await stage.sql("select host, number from rota.ticks order by tick") == [
        ("here", 1),
        ("here", 2),
        ("other", 4),
    ]


async def test_the_last_thousand_of_each_schedule_are_kept(stage: Stage) -> None:
    await lay(stage)
    await lay(stage, "other")
    await stage.run(ticks.record(marks(1, 2, name="other"), ME))
    for begin in range(0, 3000, 600):
        await stage.run(ticks.record(marks(*range(begin, begin + 600), first=begin + 1), ME))
    # The ticks of the current statement are never deleted.
    await stage.run(ticks.record(marks(3000, first=3001), ME))
    count = "select count(*), min(number), max(number) from rota.ticks where schedule = %s"
    assert await stage.sql(count, "beat") == [(1000, 2002, 3001)]
    assert await stage.sql(count, "other") == [(2, 1, 2)]


async def test_one_that_waits_for_its_run_is_kept_beyond_them(stage: Stage) -> None:
    await lay(stage, queued=TICK)
    await stage.run(ticks.record(marks(0, 1), ME))
    await stage.run(ticks.record(marks(5000, first=5000), ME))
    assert await stage.sql("select tick from rota.ticks order by tick") == [
        TICK,
        TICK + 5000 * SECOND,
    ]


# Advance


async def test_a_schedule_is_moved_on_only_from_where_it_was_read_to_be(stage: Stage) -> None:
    await lay(stage, "still")
    await lay(stage, "moved")
    await lay(stage, "started", queued=TICK)
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


async def test_one_with_nothing_to_come_has_ended_unless_something_waits(stage: Stage) -> None:
    await lay(stage, "over")
    await lay(stage, "waits")
    found = {each.name: each for each in await stage.run(ticks.lock_due(["work"]))}
    over = ScheduleAdvance(found["over"], TickDecision(), 1, 1, TICK, 5, 0)
    waits = ScheduleAdvance(found["waits"], TickDecision(queued=TICK, due=TICK), 1, 1, TICK, 5, 0)
    assert await stage.run(ticks.advance([over, waits])) == [2]
    assert await row(stage, "state::text, run", "over") == ("ended", 5)
    assert await row(stage, "state::text, queued", "waits") == ("active", TICK)


# Outcomes of runs


async def test_ends_are_noted_and_failures_in_a_row_counted(stage: Stage) -> None:
    await lay(stage)
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


async def test_failures_add_up_from_one_look_to_the_next(stage: Stage) -> None:
    await lay(stage, pause_after=3, failures=2)
    await ended(stage, "failed")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert standing.is_paused
    assert await row(stage, "state::text, reason") == ("paused", "3 failures in a row")
    assert not (await fire(stage)).started
    # Only once: a second statement has paused nothing.
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert not standing.is_paused


async def test_a_success_forgives_failures(stage: Stage) -> None:
    await lay(stage, pause_after=3, failures=2)
    await ended(stage, "succeeded")
    [standing] = await stage.run(ticks.record_outcomes(["beat"]))
    assert not standing.is_paused
    assert await row(stage, "failures, state::text") == (0, "active")


async def test_a_run_that_was_removed_before_anybody_looked_has_ended(stage: Stage) -> None:
    """Otherwise the tick would stay open for ever."""
    await lay(stage)
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
async def test_a_run_that_is_under_way_is_open(stage: Stage, place: str) -> None:
    await lay(stage, every=1.0)
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


async def test_firing_starts_the_run_writes_it_down_and_moves_on(stage: Stage) -> None:
    tick = await lay(stage)
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


async def test_what_is_due_soon_after_is_due_again(stage: Stage) -> None:
    tick = await lay(stage, every=20.0, late=50 * SECOND, overlap="allow", catch_up="all")
    await fire(stage)
    assert await runs(stage) == {("beat", tick + n * SECOND): 1 for n in (0, 20, 40)}
    assert await row(stage, "next") == tick + 60 * SECOND


def picky(due: ticks.DueSchedule, *rest: Any) -> Any:
    """Refuse the input of schedule `beat`, as a task without that argument does."""
    if due.name == "beat":
        raise ArgumentError("there is no such argument")
    return make(due, *rest)


@pytest.fixture
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other instances' time to handle unsuitable schedules be over."""
    monkeypatch.setattr(deferred, "DEFER_SECONDS", 0.0)


async def refuse(stage: Stage) -> FireResult:
    """Fire with code that accepts no input of the schedule, after the time given to other instances."""
    deferred = DeferredSchedules()
    assert not (await fire(stage, "beat", targets={"work": picky}, misfits=deferred)).handled
    return await fire(stage, targets={"work": picky}, misfits=deferred)


async def test_an_input_that_does_not_fit_is_left_to_those_whose_code_it_fits(stage: Stage) -> None:
    tick = await lay(stage)
    other = await lay(stage, "other")
    before = await row(stage, "next, due, ticks, runs, missed")
    deferred = DeferredSchedules()
    fired = await fire(stage, targets={"work": picky}, misfits=deferred)
    assert (fired.handled, list(fired.started)) == (1, [("other", other)])
    assert await told(stage) == []
    assert await row(stage, "next, due, ticks, runs, missed") == before
    assert deferred.deferred_names() == ["beat"]
    assert not (await fire(stage, targets={"work": picky}, misfits=deferred)).handled
    assert list((await fire(stage, who=OTHER)).started) == [("beat", tick)]


async def test_what_is_left_to_others_is_passed_over_by_every_look(stage: Stage) -> None:
    await lay(stage)
    assert await stage.run(ticks.lock_due(["work"], ["beat"])) == []
    assert await stage.run(ticks.due_names(["work"], ["beat"])) == []
    assert await stage.run(ticks.next_due(["work"], ["beat"])) == [None]


@pytest.mark.usefixtures("nobody_else")
async def test_an_input_that_fits_nobody_is_refused_and_the_next_tick_comes(stage: Stage) -> None:
    tick = await lay(stage)
    await refuse(stage)
    assert await told(stage) == [(tick, "refused", "there is no such argument")]
    found = "runs, ticks, next > rota.clock(), state::text"
    assert await row(stage, found) == (0, 1, True, "active")


@pytest.mark.usefixtures("nobody_else")
async def test_several_that_fit_nobody_are_refused_together(stage: Stage) -> None:
    tick = await lay(stage, every=20.0, late=50 * SECOND, overlap="allow", catch_up="all")
    await refuse(stage)
    each = (tick + n * SECOND for n in (0, 20, 40))
    assert await told(stage) == [(tick, "refused", "there is no such argument") for tick in each]


@pytest.mark.usefixtures("nobody_else")
async def test_one_that_is_refused_uses_up_no_run(stage: Stage) -> None:
    await lay(stage, max_runs=1)
    await refuse(stage)
    assert await row(stage, "runs, next > rota.clock(), state::text") == (0, True, "active")


@pytest.mark.usefixtures("nobody_else")
async def test_after_it_was_refused_the_next_one_is_left_to_others_again(stage: Stage) -> None:
    await lay(stage)
    deferred = DeferredSchedules()
    for _ in range(2):
        for seen in (False, True):
            fired = await fire(stage, targets={"work": picky}, misfits=deferred)
            assert bool(fired.handled) is seen
        await stage.sql("update rota.schedules set next = rota.clock(), due = rota.clock()")


@pytest.mark.usefixtures("nobody_else")
async def test_one_that_waited_and_does_not_fit_any_more_is_refused_too(stage: Stage) -> None:
    tick = await lay(stage, overlap="queue_one", every=1.0, run=await stage.start())
    await fire(stage)
    assert await told(stage) == [(tick, "queued", "the run before it has not ended")]
    [batch] = [await stage.claim(await stage.worker())]
    await stage.complete(batch)
    await stage.sql("update rota.schedules set due = rota.clock()")
    await refuse(stage)
    assert await told(stage) == [(tick, "refused", "there is no such argument")]
    assert await row(stage, "queued, runs") == (None, 0)


async def test_a_flow_is_started_whole(stage: Stage) -> None:
    tick = await lay(stage)
    fired = await fire(stage, targets={"work": lambda *_: RunToStart(run_of(DIAMOND), ["default"])})
    [id] = fired.started.values()
    assert await stage.sql("select id from rota.runs") == [id]
    assert await told(stage) == [(tick, "started", None)]
