"""Suspension: a waiting job leaves its worker until the first of its waits is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.engine.worker import outcomes
from rota.model.outcome import Suspended
from rota.store import jobs, runs, timers
from rota.store.jobs import MoveResult
from support import flows
from support.journals import (
    claim_queued,
    read_journal,
    read_signal,
    received_wait,
    record_entries,
    send_signal,
    sleep,
    start_suspended,
    step,
    suspend_job,
    wait,
)
from support.lost_workers import (
    NOTHING,
    History,
    declare_dead,
    lose_worker,
    queued_rows,
    reap,
    split,
    start_with,
    suspect,
)
from support.stage import Batch, Stage


async def sleeping_row(stage: Stage) -> Any:
    """Return the columns of the one sleeping job."""
    return await stage.one(
        "select wake_at = 'infinity',"
        " ceil(extract(epoch from case when wake_at < 'infinity' then wake_at - since end))::int,"
        " signals, attempt, crashes from rota.sleeping"
    )


# Waits and times


async def test_suspend_for_sleep_sets_wake_time(stage: Stage) -> None:
    batch = await start_suspended(stage, sleep(90))

    assert await sleeping_row(stage) == (False, 90, None, 1, 0)
    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await stage.held_by(batch.id) == []
    assert [each.name for each in await read_journal(stage, batch)] == ["sleep"]


async def test_suspend_for_signal_sleeps_without_wake_time(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"))

    assert await sleeping_row(stage) == (True, None, ["go"], 1, 0)
    [woken] = await stage.run(timers.wake(100))
    assert (woken.count, woken.queues, woken.next_seconds) == (0, [], None)
    assert await stage.place(batch.jobs[0]) == "sleeping"


@pytest.mark.usefixtures("stopped_clock")
async def test_wake_next_seconds_ignores_jobs_waiting_for_signals(stage: Stage) -> None:
    await start_suspended(stage, wait("go"))
    await start_suspended(stage, sleep(60))

    [woken] = await stage.run(timers.wake(100))

    assert woken.next_seconds is not None
    assert 55 < woken.next_seconds <= 60


async def test_suspend_with_several_waits_is_woken_by_the_first(stage: Stage) -> None:
    """Parallel branches: a sleep, two waits, a step that is retried."""
    retried = step("charge", position=5, is_open=True, seconds=40.0, result=None)
    branches = [sleep(50), wait("go", position=2, seconds=70), wait("stop", position=3), retried]
    batch = await start_suspended(stage, *branches)

    assert await sleeping_row(stage) == (False, 40, ["go", "stop"], 1, 0)
    assert await send_signal(stage, batch.jobs[0], "stop") == "sent"
    assert await stage.place(batch.jobs[0]) == "queued"


async def test_suspend_wait_with_timeout_is_woken_by_the_timer(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go", seconds=60))
    assert await sleeping_row(stage) == (False, 60, ["go"], 1, 0)

    await stage.sql("update rota.sleeping set wake_at = rota.clock()")
    await stage.run(timers.wake(10))

    assert await stage.place(batch.jobs[0]) == "queued"
    assert await send_signal(stage, batch.jobs[0]) == "sent"
    assert await queued_rows(stage, "attempt") == {batch.jobs[0]: 1}


async def test_suspend_stores_unwritten_entries(stage: Stage) -> None:
    batch = await stage.held(1)
    await suspend_job(
        stage, batch, wait("go", position=3), kept=[step("a"), wait("go", position=3)]
    )

    assert [(each.name, each.is_open) for each in await read_journal(stage, batch)] == [
        ("a", False),
        ("go", True),
    ]


async def test_suspend_again_for_same_wait_keeps_its_deadline(stage: Stage) -> None:
    """The job was woken by another signal; its timeout still counts from the first suspension."""
    batch = await start_suspended(stage, wait("go", seconds=60), wait("other", position=2))
    until = await stage.one("select wake_at from rota.steps where name = 'go'")
    await send_signal(stage, batch.jobs[0], "other")
    batch = await claim_queued(stage)

    await suspend_job(
        stage, batch, wait("go", seconds=60), kept=[received_wait("other", position=2)]
    )

    assert await stage.one("select wake_at from rota.sleeping") == until


# Waits that are over already


@pytest.mark.parametrize("seconds", [0.0, -5.0])
async def test_suspend_elapsed_sleep_is_queued_at_once(stage: Stage, seconds: float) -> None:
    batch = await stage.held(1)

    moved = await suspend_job(stage, batch, sleep(seconds))

    assert moved == MoveResult(batch.jobs, ["default"], [], False)
    assert await stage.place(batch.jobs[0]) == "queued"


async def test_suspend_signal_already_sent_is_queued_at_once(stage: Stage) -> None:
    batch = await stage.held(1)
    await send_signal(stage, batch.jobs[0], payload='"early"')

    moved = await suspend_job(stage, batch, wait("other"), wait("go", position=2))

    assert moved == MoveResult(batch.jobs, ["default"], [], False)
    new = await claim_queued(stage)
    assert new.jobs == batch.jobs
    assert [each.payload for each in await read_journal(stage, new)] == [None, '"early"']


async def test_suspend_ignores_signal_of_another_run_or_step(stage: Stage) -> None:
    batch, other = await stage.held(1), await stage.held(1)
    await send_signal(stage, other.jobs[0])
    await send_signal(stage, batch.jobs[0], "charge")
    retried = step("charge", is_open=True, seconds=40.0, result=None)

    await suspend_job(stage, batch, wait("go", position=2), retried)

    assert await stage.place(batch.jobs[0]) == "sleeping"


async def test_suspend_without_waits_is_queued_at_once(stage: Stage) -> None:
    batch = await stage.held(1)

    await suspend_job(stage, batch)

    assert await stage.place(batch.jobs[0]) == "queued"


async def test_suspend_queued_at_once_is_behind_queued_jobs(stage: Stage) -> None:
    batch = await stage.held(1)
    others = await stage.start_several(2)

    await suspend_job(stage, batch, sleep(0))

    assert list((await claim_queued(stage)).jobs) == [*others, *batch.jobs]


# Attempt and suspicion


@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize(
    "history", [(0, None), (2, None), (0, "mild"), (0, "grave"), (1, "mild"), (3, "grave")]
)
async def test_suspend_keeps_attempt_and_clears_suspicion(
    stage: Stage, history: History, over: bool
) -> None:
    [job] = await start_with(stage, history, attempt=3)
    worker = await stage.worker()
    batch = await suspect(stage, worker) if history[1] else await stage.claim(worker)

    await suspend_job(stage, batch, sleep(0 if over else 60))

    place = "queued" if over else "sleeping"
    left = await stage.sql(f"select job, attempt, crashes from rota.{place}")
    assert left == [(job, 3, history[0])]
    assert set((await queued_rows(stage, "suspicion")).values()) <= {None}


async def test_suspend_writes_no_outcome_and_no_attempt(stage: Stage) -> None:
    await start_suspended(stage, wait("go"))

    assert await stage.sql("select job from rota.outcomes") == []
    assert await stage.sql("select job from rota.attempts") == []


# Several jobs


async def test_suspend_several_jobs_each_has_its_own_wait(stage: Stage) -> None:
    batch = await stage.held(5)
    a, b, c, d, e = batch.members
    await send_signal(stage, c.job, payload='"for c"')
    own = await split(stage, batch, d.job)
    d.claim = own.id
    going: list[tuple[Any, Suspended]] = [
        (a, Suspended((wait("go"),), (wait("go"),))),
        (b, Suspended((sleep(60),), (sleep(60),))),
        (c, Suspended((wait("go"),), (wait("go"),))),
        (d, Suspended((wait("go"),), (wait("go"),))),
    ]

    *_, [moved] = await stage.together(*outcomes.suspend(batch.worker, going))

    assert sorted(moved.jobs) == [a.job, b.job, c.job, d.job]
    assert await stage.sql("select job, signals from rota.sleeping order by job") == [
        (a.job, ["go"]),
        (b.job, None),
        (d.job, ["go"]),
    ]
    assert list(await queued_rows(stage, "seq")) == [c.job]
    assert await stage.held_by(batch.id) == [e.job]
    assert await stage.held_by(own.id) == []


# Cancel requests


async def test_suspend_with_cancel_request_cancels_the_job(stage: Stage) -> None:
    batch = await stage.held(2)
    await stage.run(runs.cancel(batch.jobs[0]), stage.watch)

    moved = await suspend_job(stage, batch, wait("go"))

    assert moved.jobs == batch.jobs[:1]
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select * from rota.cancels") == []
    assert await stage.held_by(batch.id) == batch.jobs[1:]
    assert await send_signal(stage, batch.jobs[0]) == "ended"


async def test_suspend_cancelled_flow_job_skips_successors(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": ["a"]})
    batch = await flows.claim(stage, await stage.worker())
    await flows.cancel(stage, laid["a"])

    moved = await suspend_job(stage, batch, wait("go"))

    assert moved.runs == [laid.run]
    assert await flows.outcomes(stage, laid) == {
        "a": "cancelled",
        "b": "skipped",
        "run": "cancelled",
    }


async def test_cancel_suspended_job_ends_the_run(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go"))

    assert await flows.cancel(stage, batch.jobs[0]) == "cancelled"

    assert await send_signal(stage, batch.jobs[0]) == "ended"


# Fences


async def test_suspend_by_former_holder_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await lose_worker(stage, batch)
    taken = await suspect(stage, await stage.worker())
    taken.members[0].claim = taken.id

    assert await suspend_job(stage, batch, wait("go", seconds=5)) == NOTHING
    mixed = Batch(taken.worker, batch.id, batch.jobs, batch.members)
    assert await suspend_job(stage, mixed, wait("go", seconds=5)) == NOTHING

    assert await stage.held_by(taken.id) == batch.jobs
    assert await stage.sql("select name from rota.steps") == []
    assert await record_entries(stage, taken, step("a")) == []


async def test_suspend_during_reap_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await declare_dead(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        lying = stage.meanwhile(suspend_job(stage, batch, wait("go")))
        await stage.waits(stage.engine, reaping)

    assert await lying == NOTHING
    assert await queued_rows(stage, "attempt") != {}
    # The row that the late session wrote does not keep a signal from the next attempt.
    assert await send_signal(stage, batch.jobs[0]) == "sent"
    taken = await suspect(stage, await stage.worker())
    await suspend_job(stage, taken, wait("go"))
    assert await stage.place(batch.jobs[0]) == "queued"


async def test_reap_during_suspension_skips_the_claim(stage: Stage) -> None:
    batch = await stage.held(2)
    await declare_dead(stage, batch.worker)
    lying = await stage.connect(engine=True)

    async with lying.transaction():
        await suspend_job(stage, batch, wait("go"), on=lying)
        async with asyncio.timeout(60):
            assert await reap(stage, batch.id) == NOTHING

    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert (await reap(stage, batch.id)).jobs == batch.jobs[1:]


async def test_suspend_repeated_after_lost_answer_changes_nothing(stage: Stage) -> None:
    batch = await start_suspended(stage, wait("go", seconds=60))
    before = await stage.everything()

    assert await suspend_job(stage, batch, wait("go", seconds=60)) == NOTHING
    assert await stage.everything() == before
    assert await stage.run(jobs.recorded(batch.jobs, [batch.id])) == []

    assert await send_signal(stage, batch.jobs[0]) == "sent"
    assert await suspend_job(stage, batch, wait("go", seconds=60)) == NOTHING
    assert await stage.place(batch.jobs[0]) == "queued"
    assert await read_signal(stage, batch.jobs[0]) == "1"
