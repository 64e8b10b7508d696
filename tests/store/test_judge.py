"""Finishing lost jobs that are not retried: the recorded outcome, and the required claim."""

from __future__ import annotations

import pytest

from rota.store import claims, jobs, runs, timers

from . import flows
from .losses import NOTHING, bury, die, judge, lost, reap, suspect, suspects
from .stage import Batch, Stage

ERROR = '{"type": "rota.errors.WorkerLost", "message": "gone"}'


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_the_attempt_that_was_lost_becomes_the_outcome(stage: Stage, state: str) -> None:
    first = await stage.held(1)
    await die(stage, first)
    batch = await suspect(stage, await stage.worker())
    assert (batch.members[0].attempt, batch.members[0].lost) == (2, -3)

    moved = await judge(stage, batch, state)

    assert moved.jobs == batch.jobs
    assert await stage.sql("select state::text, attempt, worker, claim from rota.outcomes") == [
        (state, 1, first.worker, batch.id)
    ]
    assert await stage.sql("select * from rota.attempts") == []
    assert await stage.sql("select * from rota.claims") == []


async def test_one_that_was_charged_with_nothing_ends_in_the_attempt_it_is_in(stage: Stage) -> None:
    await lost(stage, 2)
    judging = await stage.worker()
    for batch in await suspects(stage, judging):
        await judge(stage, batch)

    assert (
        await stage.sql("select state::text, attempt, worker from rota.outcomes")
        == [("failed", 1, judging)] * 2
    )


async def test_attempts_that_failed_otherwise_stay_what_they_are(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.retry(batch, delay=0)
    await stage.run(timers.wake(10))
    second = await stage.claim(await stage.worker())
    await die(stage, second)
    third = await suspect(stage, await stage.worker())
    assert third.members[0].attempt == 3

    await judge(stage, third)

    assert await stage.sql("select attempt from rota.attempts") == [1]
    assert await stage.sql("select attempt, worker from rota.outcomes") == [(2, second.worker)]


async def test_of_several_that_were_lost_only_the_last_becomes_the_outcome(stage: Stage) -> None:
    first = await stage.held(1)
    await die(stage, first)
    second = await suspect(stage, await stage.worker())
    await die(stage, second)
    third = await suspect(stage, await stage.worker())

    await judge(stage, third)

    assert await stage.sql("select attempt, worker from rota.attempts") == [(1, first.worker)]
    assert await stage.sql("select attempt, worker from rota.outcomes") == [(2, second.worker)]


async def test_the_documents_are_kept_and_each_job_gets_its_own_state(stage: Stage) -> None:
    batch = await stage.held(2)
    a, b = batch.jobs
    await stage.together(
        claims.lock(batch.worker, [batch.id]),
        jobs.finish_lost(
            batch.worker, [batch.id] * 2, [b, a], ["cancelled", "failed"], [ERROR, None]
        ),
        claims.release(batch.worker, [batch.id], batch.jobs),
    )

    assert await stage.sql(
        "select job, state::text, error::text from rota.outcomes order by 1"
    ) == [
        (a, "failed", None),
        (b, "cancelled", ERROR),
    ]


@pytest.mark.parametrize(("state", "after"), [("failed", "skipped"), ("cancelled", "skipped")])
async def test_in_a_flow_it_is_passed_on(stage: Stage, state: str, after: str) -> None:
    laid = await flows.start(stage, {"a": [], "b": ["a"]})
    batch = await flows.claim(stage, await stage.worker())
    await die(stage, batch)
    [again] = await suspects(stage, await stage.worker(), tasks=["f.a"])

    moved = await judge(stage, again, state)

    assert moved.runs == [laid.run]
    assert await flows.outcomes(stage, laid) == {"a": state, "b": after, "run": state}


async def test_a_wish_to_cancel_goes_with_it(stage: Stage) -> None:
    batch = await stage.held(1)
    assert await stage.run(runs.cancel(batch.jobs[0]), stage.watch) == ["requested"]

    await judge(stage, batch)

    assert await stage.sql("select * from rota.cancels") == []


async def test_who_has_lost_it_judges_nothing_and_the_record_stays(stage: Stage) -> None:
    first = await stage.held(1)
    await die(stage, first)
    second = await suspect(stage, await stage.worker())
    await die(stage, second)
    before = await stage.everything()

    assert await judge(stage, second) == NOTHING
    assert await judge(stage, Batch(second.worker, first.id, first.jobs, [])) == NOTHING

    assert await stage.everything() == before
    assert await stage.sql("select attempt from rota.attempts order by 1") == [1, 2]


async def test_judging_waits_for_a_reaper_and_is_refused(stage: Stage) -> None:
    await lost(stage, 2)
    batch = await suspect(stage, await stage.worker())
    await bury(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        judging = stage.meanwhile(judge(stage, batch))
        await stage.waits(stage.engine, reaping)

    assert await judging == NOTHING
    assert await stage.sql("select * from rota.outcomes") == []
