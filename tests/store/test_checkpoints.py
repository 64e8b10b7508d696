"""Checkpoints of jobs: stored under the fence, and given to the next attempt."""

from __future__ import annotations

import asyncio

import pytest

from rota.store import claims, jobs, runs, timers

from .losses import bury, die, reap, split, suspect
from .past import Past
from .stage import Batch, Connection, Stage


async def keep(stage: Stage, batch: Batch, state: str, on: Connection | None = None) -> list[int]:
    """Store a checkpoint as the engine does, in a claim of the job's own."""
    [job] = batch.jobs
    _, kept = await stage.together(
        claims.lock_shared(batch.worker, batch.id, job),
        jobs.checkpoint(batch.worker, batch.id, job, state),
        on=on,
    )
    return list(kept)


async def test_the_last_one_is_what_the_next_attempt_is_given(stage: Stage) -> None:
    batch = await stage.held(1)
    assert batch.members[0].checkpoint is None
    assert await keep(stage, batch, '{"at": 1}') == batch.jobs
    assert await keep(stage, batch, '{"at": 2}') == batch.jobs

    await stage.retry(batch, delay=0)
    await stage.run(timers.wake(10))

    again = await stage.claim(await stage.worker())
    assert again.members[0].checkpoint == '{"at": 2}'


async def test_it_survives_being_handed_back_being_lost_and_quarantine(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, "[1]")

    await stage.give_back(batch)
    batch = await stage.claim(await stage.worker())
    assert batch.members[0].checkpoint == "[1]"

    await die(stage, batch)
    lost = await suspect(stage, await stage.worker())
    assert lost.members[0].checkpoint == "[1]"

    await keep(stage, lost, "[1, 2]")
    await stage.together(
        claims.lock(lost.worker, [lost.id]),
        jobs.quarantine(lost.worker, [lost.id], lost.jobs, [None]),
        claims.release(lost.worker, [lost.id], lost.jobs),
    )
    await stage.run(jobs.release_quarantined(lost.jobs[0]))
    assert (await stage.claim(await stage.worker())).members[0].checkpoint == "[1, 2]"


async def test_each_job_is_given_its_own(stage: Stage) -> None:
    batch = await stage.held(3)
    for job in batch.jobs[:2]:
        own = await split(stage, batch, job)
        await keep(stage, own, str(job))
        await stage.give_back(own)
    await stage.give_back(batch, batch.jobs[2:])

    again = await stage.claim(await stage.worker())

    assert {each.job: each.checkpoint for each in again.members} == {
        batch.jobs[0]: str(batch.jobs[0]),
        batch.jobs[1]: str(batch.jobs[1]),
        batch.jobs[2]: None,
    }


async def test_who_has_lost_the_job_keeps_nothing(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, '"mine"')
    await die(stage, batch)
    taken = await suspect(stage, await stage.worker())

    assert await keep(stage, batch, '"late"') == []
    assert await keep(stage, Batch(taken.worker, batch.id, batch.jobs, []), '"mixed"') == []

    assert await stage.sql("select state::text from rota.checkpoints") == ['"mine"']


async def test_one_that_meets_the_reaper_is_refused_or_comes_first(stage: Stage) -> None:
    """The former holder never overwrites the checkpoint that the next holder was given."""
    batch = await stage.held(1)
    await bury(stage, batch.worker)
    reaping, keeping = await stage.connect(engine=True), await stage.connect(engine=True)

    async with keeping.transaction():
        assert await keep(stage, batch, '"first"', on=keeping) == batch.jobs
        assert (await reap(stage, batch.id)).jobs == []
    async with reaping.transaction():
        assert (await reap(stage, batch.id, on=reaping)).jobs == batch.jobs
        late = stage.meanwhile(keep(stage, batch, '"late"', on=keeping))
        await stage.waits(keeping, reaping)

    assert await late == []
    assert (await suspect(stage, await stage.worker())).members[0].checkpoint == '"first"'


async def test_keeping_one_stops_no_neighbour(stage: Stage) -> None:
    batch = await stage.held(2)
    own = await split(stage, batch, batch.jobs[0])
    keeping = await stage.connect(engine=True)

    async with keeping.transaction():
        await keep(stage, own, "1", on=keeping)
        async with asyncio.timeout(60):
            assert await stage.complete(batch, batch.jobs[1:]) == []


@pytest.mark.parametrize("end", ["succeeded", "failed"])
async def test_they_go_with_the_run_when_it_is_old(stage: Stage, end: str) -> None:
    past = Past(stage)
    batch = await stage.held(1)
    await keep(stage, batch, "1")
    young = await stage.held(1)
    await keep(stage, young, "2")
    if end == "succeeded":
        await stage.complete(batch)
    else:
        await stage.finish(batch, "failed")
    await stage.sql("update rota.outcomes set at = at - interval '8 days'")
    await stage.sql("update rota.jobs set created = created - interval '8 days'")

    await past.prune("7d")

    assert await past.jobs() == young.jobs
    assert await stage.sql("select job from rota.checkpoints") == young.jobs


async def test_they_go_with_every_job_of_a_flow(stage: Stage) -> None:
    past = Past(stage)
    run, members = await past.flow(10)
    await stage.sql(
        "insert into rota.checkpoints (job, state) select unnest(%s::bigint[]), '1'", members
    )

    await past.prune("7d")

    assert await past.mentions(run) == {}
    assert await stage.sql("select * from rota.checkpoints") == []


async def test_a_run_tried_again_goes_on_from_where_it_was(stage: Stage) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, "7")
    await stage.finish(batch, "failed")

    await stage.run(runs.retry(batch.jobs[0]))

    assert (await stage.claim(await stage.worker())).members[0].checkpoint == "7"
