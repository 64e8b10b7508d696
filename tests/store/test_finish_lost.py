"""Finishing lost jobs that are not retried: the recorded outcome, and the required claim."""

from __future__ import annotations

import pytest

from rota.store import jobs, runs, timers
from support import flows
from support.lost_workers import (
    NOTHING,
    declare_dead,
    finish_as_lost,
    lose_worker,
    lost,
    reap,
    suspect,
    suspects,
)
from support.stage import Batch, Stage

ERROR = '{"type": "rota.errors.WorkerLost", "message": "gone"}'


@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_finish_lost_records_the_lost_attempt_as_outcome(stage: Stage, state: str) -> None:
    first = await stage.held(1)
    await lose_worker(stage, first)
    batch = await suspect(stage, await stage.worker())
    assert (batch.members[0].attempt, batch.members[0].crashes) == (2, 1)

    moved = await finish_as_lost(stage, batch, state)

    assert moved.jobs == batch.jobs
    assert await stage.sql("select state::text, attempt, worker, claim from rota.outcomes") == [
        (state, 1, first.worker, batch.id)
    ]
    assert await stage.sql("select * from rota.attempts") == []
    assert await stage.sql("select * from rota.claims") == []


async def test_finish_lost_uncharged_job_ends_in_current_attempt(stage: Stage) -> None:
    await lost(stage, 2)
    judging = await stage.worker()
    for batch in await suspects(stage, judging):
        await finish_as_lost(stage, batch)

    assert (
        await stage.sql("select state::text, attempt, worker from rota.outcomes")
        == [("failed", 1, judging)] * 2
    )


async def test_finish_lost_keeps_earlier_failed_attempts(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.retry(batch, delay=0)
    await stage.run(timers.wake(10))
    second = await stage.claim(await stage.worker())
    await lose_worker(stage, second)
    third = await suspect(stage, await stage.worker())
    assert third.members[0].attempt == 3

    await finish_as_lost(stage, third)

    assert await stage.sql("select attempt from rota.attempts") == [1]
    assert await stage.sql("select attempt, worker from rota.outcomes") == [(2, second.worker)]


async def test_finish_lost_after_two_losses_records_the_last(stage: Stage) -> None:
    first = await stage.held(1)
    await lose_worker(stage, first)
    second = await suspect(stage, await stage.worker())
    await lose_worker(stage, second)
    third = await suspect(stage, await stage.worker())

    await finish_as_lost(stage, third)

    assert await stage.sql("select attempt, worker from rota.attempts") == [(1, first.worker)]
    assert await stage.sql("select attempt, worker from rota.outcomes") == [(2, second.worker)]


async def test_finish_lost_stores_state_and_error_of_each_job(stage: Stage) -> None:
    batch = await stage.held(2)
    a, b = batch.jobs
    await stage.run(
        jobs.finish_lost(
            batch.worker, [batch.id] * 2, [b, a], ["cancelled", "failed"], [ERROR, None]
        )
    )

    assert await stage.sql(
        "select job, state::text, error::text from rota.outcomes order by 1"
    ) == [
        (a, "failed", None),
        (b, "cancelled", ERROR),
    ]


@pytest.mark.parametrize(("state", "after"), [("failed", "skipped"), ("cancelled", "skipped")])
async def test_finish_lost_in_a_flow_skips_successors(stage: Stage, state: str, after: str) -> None:
    laid = await flows.start(stage, {"a": [], "b": ["a"]})
    batch = await flows.claim(stage, await stage.worker())
    await lose_worker(stage, batch)
    [again] = await suspects(stage, await stage.worker(), tasks=["f.a"])

    moved = await finish_as_lost(stage, again, state)

    assert moved.runs == [laid.run]
    assert await flows.outcomes(stage, laid) == {"a": state, "b": after, "run": state}


async def test_finish_lost_deletes_the_cancel_request(stage: Stage) -> None:
    batch = await stage.held(1)
    assert await stage.run(runs.cancel(batch.jobs[0]), stage.watch) == ["requested"]

    await finish_as_lost(stage, batch)

    assert await stage.sql("select * from rota.cancels") == []


async def test_finish_lost_by_former_holder_is_refused(stage: Stage) -> None:
    first = await stage.held(1)
    await lose_worker(stage, first)
    second = await suspect(stage, await stage.worker())
    await lose_worker(stage, second)
    before = await stage.everything()

    assert await finish_as_lost(stage, second) == NOTHING
    assert await finish_as_lost(stage, Batch(second.worker, first.id, first.jobs, [])) == NOTHING

    assert await stage.everything() == before
    assert await stage.sql("select attempt from rota.attempts order by 1") == [1, 2]


async def test_finish_lost_during_reap_waits_and_is_refused(stage: Stage) -> None:
    await lost(stage, 2)
    batch = await suspect(stage, await stage.worker())
    await declare_dead(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        judging = stage.meanwhile(finish_as_lost(stage, batch))
        await stage.waits(stage.engine, reaping)

    assert await judging == NOTHING
    assert await stage.sql("select * from rota.outcomes") == []
