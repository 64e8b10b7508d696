"""Suspension: a waiting job leaves its worker until the first of its waits is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.engine.worker import outcomes
from rota.model.outcome import Suspended
from rota.store import jobs, runs, timers
from rota.store.jobs import MoveResult

from . import flows
from .durably import again, asleep, heard, keep, known, lie_down, said, say, sleep, step, wait
from .losses import NOTHING, bury, die, put_in_ready, ready, reap, split, suspect
from .stage import Batch, Stage


async def bed(stage: Stage) -> Any:
    """Return the columns of the one sleeping job."""
    return await stage.one(
        "select wake_at = 'infinity',"
        " ceil(extract(epoch from case when wake_at < 'infinity' then wake_at - since end))::int,"
        " signals, attempt, lost from rota.sleeping"
    )


# Waits and times


async def test_it_sleeps_until_its_time(stage: Stage) -> None:
    batch = await asleep(stage, sleep(90))

    assert await bed(stage) == (False, 90, None, 1, 0)
    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await stage.held_by(batch.id) == []
    assert [each.name for each in await known(stage, batch)] == ["sleep"]


async def test_it_sleeps_until_a_signal_however_long_that_takes(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"))

    assert await bed(stage) == (True, None, ["go"], 1, 0)
    [woken] = await stage.run(timers.wake(100))
    assert (woken.count, woken.queues, woken.next_seconds) == (0, [], None)
    assert await stage.place(batch.jobs[0]) == "sleeping"


async def test_of_those_who_wait_for_ever_no_timer_is_told(stage: Stage) -> None:
    await asleep(stage, wait("go"))
    await asleep(stage, sleep(60))

    [woken] = await stage.run(timers.wake(100))

    assert woken.next_seconds is not None
    assert 55 < woken.next_seconds <= 60


async def test_it_sleeps_until_the_first_of_what_it_waits_for(stage: Stage) -> None:
    """Parallel branches: a sleep, two waits, a step that is retried."""
    retried = step("charge", position=5, is_open=True, seconds=40.0, result=None)
    branches = [sleep(50), wait("go", position=2, seconds=70), wait("stop", position=3), retried]
    batch = await asleep(stage, *branches)

    assert await bed(stage) == (False, 40, ["go", "stop"], 1, 0)
    assert await say(stage, batch.jobs[0], "stop") == "sent"
    assert await stage.place(batch.jobs[0]) == "queued"


async def test_a_wait_with_a_time_is_woken_by_whichever_comes_first(stage: Stage) -> None:
    batch = await asleep(stage, wait("go", seconds=60))
    assert await bed(stage) == (False, 60, ["go"], 1, 0)

    await stage.sql("update rota.sleeping set wake_at = rota.clock()")
    await stage.run(timers.wake(10))

    assert await stage.place(batch.jobs[0]) == "queued"
    assert await say(stage, batch.jobs[0]) == "sent"
    assert await ready(stage, "attempt") == {batch.jobs[0]: 1}


async def test_what_it_came_to_before_is_kept_with_it(stage: Stage) -> None:
    batch = await stage.held(1)
    await lie_down(stage, batch, wait("go", position=3), kept=[step("a"), wait("go", position=3)])

    assert [(each.name, each.is_open) for each in await known(stage, batch)] == [
        ("a", False),
        ("go", True),
    ]


async def test_lying_down_again_for_the_same_wait_does_not_begin_it_anew(stage: Stage) -> None:
    """The job was woken by another signal; its timeout still counts from the first suspension."""
    batch = await asleep(stage, wait("go", seconds=60), wait("other", position=2))
    until = await stage.one("select wake_at from rota.steps where name = 'go'")
    await say(stage, batch.jobs[0], "other")
    batch = await again(stage)

    await lie_down(stage, batch, wait("go", seconds=60), kept=[heard("other", position=2)])

    assert await stage.one("select wake_at from rota.sleeping") == until


# Waits that are over already


@pytest.mark.parametrize("seconds", [0.0, -5.0])
async def test_one_whose_time_has_come_is_ready_at_once(stage: Stage, seconds: float) -> None:
    batch = await stage.held(1)

    moved = await lie_down(stage, batch, sleep(seconds))

    assert moved == MoveResult(batch.jobs, ["default"], [], False)
    assert await stage.place(batch.jobs[0]) == "queued"


async def test_one_whose_signal_was_sent_is_ready_at_once_and_has_it(stage: Stage) -> None:
    batch = await stage.held(1)
    await say(stage, batch.jobs[0], payload='"early"')

    moved = await lie_down(stage, batch, wait("other"), wait("go", position=2))

    assert moved == MoveResult(batch.jobs, ["default"], [], False)
    new = await again(stage)
    assert new.jobs == batch.jobs
    assert [each.payload for each in await known(stage, new)] == [None, '"early"']


async def test_a_signal_of_another_run_or_for_a_step_of_that_name_is_none(stage: Stage) -> None:
    batch, other = await stage.held(1), await stage.held(1)
    await say(stage, other.jobs[0])
    await say(stage, batch.jobs[0], "charge")
    retried = step("charge", is_open=True, seconds=40.0, result=None)

    await lie_down(stage, batch, wait("go", position=2), retried)

    assert await stage.place(batch.jobs[0]) == "sleeping"


async def test_one_that_waits_for_nothing_is_ready_at_once_rather_than_lost(stage: Stage) -> None:
    batch = await stage.held(1)

    await lie_down(stage, batch)

    assert await stage.place(batch.jobs[0]) == "queued"


async def test_one_that_is_ready_at_once_queues_behind_the_others(stage: Stage) -> None:
    batch = await stage.held(1)
    others = await stage.start_several(2)

    await lie_down(stage, batch, sleep(0))

    assert list((await again(stage)).jobs) == [*others, *batch.jobs]


# Attempt and suspicion


@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize(("mark", "left"), [(0, 0), (2, 2), (-1, 0), (-2, 0), (-3, 1), (-5, 3)])
async def test_the_attempt_is_not_counted_and_who_came_back_is_no_suspect(
    stage: Stage, mark: int, left: int, over: bool
) -> None:
    [job] = await put_in_ready(stage, mark, attempt=3)
    worker = await stage.worker()
    batch = await suspect(stage, worker) if mark < 0 else await stage.claim(worker)

    await lie_down(stage, batch, sleep(0 if over else 60))

    place = "queued" if over else "sleeping"
    assert await stage.sql(f"select job, attempt, lost from rota.{place}") == [(job, 3, left)]


async def test_no_outcome_and_no_attempt_is_written(stage: Stage) -> None:
    await asleep(stage, wait("go"))

    assert await stage.sql("select job from rota.outcomes") == []
    assert await stage.sql("select job from rota.attempts") == []


# Several jobs


async def test_many_lie_down_together_each_for_its_own(stage: Stage) -> None:
    batch = await stage.held(5)
    a, b, c, d, e = batch.members
    await say(stage, c.job, payload='"for c"')
    own = await split(stage, batch, d.job)
    d.claim = own.id
    going: list[tuple[Any, Suspended]] = [
        (a, Suspended((wait("go"),), (wait("go"),))),
        (b, Suspended((sleep(60),), (sleep(60),))),
        (c, Suspended((wait("go"),), (wait("go"),))),
        (d, Suspended((wait("go"),), (wait("go"),))),
    ]

    *_, [moved], _ = await stage.together(*outcomes.suspend(batch.worker, going))

    assert sorted(moved.jobs) == [a.job, b.job, c.job, d.job]
    assert await stage.sql("select job, signals from rota.sleeping order by job") == [
        (a.job, ["go"]),
        (b.job, None),
        (d.job, ["go"]),
    ]
    assert list(await ready(stage, "seq")) == [c.job]
    assert await stage.held_by(batch.id) == [e.job]
    assert await stage.held_by(own.id) == []


# Cancel requests


async def test_one_that_somebody_wished_to_cancel_is_cancelled_instead(stage: Stage) -> None:
    batch = await stage.held(2)
    await stage.run(runs.cancel(batch.jobs[0]), stage.watch)

    moved = await lie_down(stage, batch, wait("go"))

    assert moved.jobs == batch.jobs[:1]
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select * from rota.cancels") == []
    assert await stage.held_by(batch.id) == batch.jobs[1:]
    assert await say(stage, batch.jobs[0]) == "ended"


async def test_a_job_of_a_flow_that_is_cancelled_so_is_passed_on(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": ["a"]})
    batch = await flows.claim(stage, await stage.worker())
    await flows.cancel(stage, laid["a"])

    moved = await lie_down(stage, batch, wait("go"))

    assert moved.runs == [laid.run]
    assert await flows.outcomes(stage, laid) == {
        "a": "cancelled",
        "b": "skipped",
        "run": "cancelled",
    }


async def test_one_that_sleeps_can_be_cancelled(stage: Stage) -> None:
    batch = await asleep(stage, wait("go"))

    assert await flows.cancel(stage, batch.jobs[0]) == "cancelled"

    assert await say(stage, batch.jobs[0]) == "ended"


# Fences


async def test_who_has_lost_the_job_cannot_lay_it_down(stage: Stage) -> None:
    batch = await stage.held(1)
    await die(stage, batch)
    taken = await suspect(stage, await stage.worker())
    taken.members[0].claim = taken.id

    assert await lie_down(stage, batch, wait("go", seconds=5)) == NOTHING
    mixed = Batch(taken.worker, batch.id, batch.jobs, batch.members)
    assert await lie_down(stage, mixed, wait("go", seconds=5)) == NOTHING

    assert await stage.held_by(taken.id) == batch.jobs
    assert await stage.sql("select name from rota.steps") == []
    assert await keep(stage, taken, step("a")) == []


async def test_one_that_meets_the_reaper_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await bury(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        lying = stage.meanwhile(lie_down(stage, batch, wait("go")))
        await stage.waits(stage.engine, reaping)

    assert await lying == NOTHING
    assert await ready(stage, "attempt") != {}
    # The row that the late session wrote does not keep a signal from the next attempt.
    assert await say(stage, batch.jobs[0]) == "sent"
    taken = await suspect(stage, await stage.worker())
    await lie_down(stage, taken, wait("go"))
    assert await stage.place(batch.jobs[0]) == "queued"


async def test_a_reaper_passes_by_one_that_is_lying_down(stage: Stage) -> None:
    batch = await stage.held(2)
    await bury(stage, batch.worker)
    lying = await stage.connect(engine=True)

    async with lying.transaction():
        await lie_down(stage, batch, wait("go"), on=lying)
        async with asyncio.timeout(60):
            assert await reap(stage, batch.id) == NOTHING

    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert (await reap(stage, batch.id)).jobs == batch.jobs[1:]


async def test_lying_down_twice_because_the_answer_was_lost_changes_nothing(stage: Stage) -> None:
    batch = await asleep(stage, wait("go", seconds=60))
    before = await stage.everything()

    assert await lie_down(stage, batch, wait("go", seconds=60)) == NOTHING
    assert await stage.everything() == before
    assert await stage.run(jobs.recorded(batch.jobs, [batch.id])) == []

    assert await say(stage, batch.jobs[0]) == "sent"
    assert await lie_down(stage, batch, wait("go", seconds=60)) == NOTHING
    assert await stage.place(batch.jobs[0]) == "queued"
    assert await said(stage, batch.jobs[0]) == "1"
