"""Checkpoints of jobs: stored under the fence, and given to the next attempt."""

from __future__ import annotations

import asyncio

import pytest

from rota.store import claims, jobs, runs, timers
from support.lost_workers import declare_dead, lose_worker, reap, split, suspect
from support.old_runs import OldRuns
from support.stage import Batch, Connection, Stage


async def store_checkpoint(
    stage: Stage, batch: Batch, state: str, on: Connection | None = None
) -> list[int]:
    """Store a checkpoint as the engine does, in a claim of the job's own."""
    [job] = batch.jobs
    _, kept = await stage.together(
        claims.lock_shared(batch.worker, batch.id, job),
        jobs.checkpoint(batch.worker, batch.id, job, state),
        on=on,
    )
    return list(kept)


async def test_checkpoint_last_one_is_given_to_next_attempt(stage: Stage) -> None:
    batch = await stage.held(1)
    assert batch.members[0].checkpoint is None
    assert await store_checkpoint(stage, batch, '{"at": 1}') == batch.jobs
    assert await store_checkpoint(stage, batch, '{"at": 2}') == batch.jobs

    await stage.retry(batch, delay=0)
    await stage.run(timers.wake(10))

    again = await stage.claim(await stage.worker())
    assert again.members[0].checkpoint == '{"at": 2}'


async def test_checkpoint_survives_return_loss_and_quarantine(stage: Stage) -> None:
    batch = await stage.held(1)
    await store_checkpoint(stage, batch, "[1]")

    await stage.give_back(batch)
    batch = await stage.claim(await stage.worker())
    assert batch.members[0].checkpoint == "[1]"

    await lose_worker(stage, batch)
    lost = await suspect(stage, await stage.worker())
    assert lost.members[0].checkpoint == "[1]"

    await store_checkpoint(stage, lost, "[1, 2]")
    await stage.run(jobs.quarantine(lost.worker, [lost.id], lost.jobs, [None]))
    await stage.run(jobs.release_quarantined(lost.jobs[0]))
    assert (await stage.claim(await stage.worker())).members[0].checkpoint == "[1, 2]"


async def test_checkpoint_of_each_job_is_given_to_that_job(stage: Stage) -> None:
    batch = await stage.held(3)
    for job in batch.jobs[:2]:
        own = await split(stage, batch, job)
        await store_checkpoint(stage, own, str(job))
        await stage.give_back(own)
    await stage.give_back(batch, batch.jobs[2:])

    again = await stage.claim(await stage.worker())

    assert {each.job: each.checkpoint for each in again.members} == {
        batch.jobs[0]: str(batch.jobs[0]),
        batch.jobs[1]: str(batch.jobs[1]),
        batch.jobs[2]: None,
    }


async def test_checkpoint_by_former_holder_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await store_checkpoint(stage, batch, '"mine"')
    await lose_worker(stage, batch)
    taken = await suspect(stage, await stage.worker())

    assert await store_checkpoint(stage, batch, '"late"') == []
    assert (
        await store_checkpoint(stage, Batch(taken.worker, batch.id, batch.jobs, []), '"mixed"')
        == []
    )

    assert await stage.sql("select state::text from rota.checkpoints") == ['"mine"']


async def test_checkpoint_racing_with_reap_is_first_or_refused(stage: Stage) -> None:
    """The former holder never overwrites the checkpoint that the next holder was given."""
    batch = await stage.held(1)
    await declare_dead(stage, batch.worker)
    reaping, keeping = await stage.connect(engine=True), await stage.connect(engine=True)

    async with keeping.transaction():
        assert await store_checkpoint(stage, batch, '"first"', on=keeping) == batch.jobs
        assert (await reap(stage, batch.id)).jobs == []
    async with reaping.transaction():
        assert (await reap(stage, batch.id, on=reaping)).jobs == batch.jobs
        late = stage.meanwhile(store_checkpoint(stage, batch, '"late"', on=keeping))
        await stage.waits(keeping, reaping)

    assert await late == []
    assert (await suspect(stage, await stage.worker())).members[0].checkpoint == '"first"'


async def test_checkpoint_write_does_not_block_rest_of_batch(stage: Stage) -> None:
    batch = await stage.held(2)
    own = await split(stage, batch, batch.jobs[0])
    keeping = await stage.connect(engine=True)

    async with keeping.transaction():
        await store_checkpoint(stage, own, "1", on=keeping)
        async with asyncio.timeout(60):
            assert await stage.complete(batch, batch.jobs[1:]) == []


@pytest.mark.parametrize("end", ["succeeded", "failed"])
async def test_prune_deletes_checkpoint_of_old_run(stage: Stage, end: str) -> None:
    past = OldRuns(stage)
    batch = await stage.held(1)
    await store_checkpoint(stage, batch, "1")
    young = await stage.held(1)
    await store_checkpoint(stage, young, "2")
    if end == "succeeded":
        await stage.complete(batch)
    else:
        await stage.finish(batch, "failed")
    await stage.sql("update rota.outcomes set at = at - interval '8 days'")
    await stage.sql("update rota.jobs set created = created - interval '8 days'")

    await past.prune("7d")

    assert await past.jobs() == young.jobs
    assert await stage.sql("select job from rota.checkpoints") == young.jobs


async def test_prune_deletes_checkpoints_of_all_jobs_of_a_flow(stage: Stage) -> None:
    past = OldRuns(stage)
    run, members = await past.flow(10)
    await stage.sql(
        "insert into rota.checkpoints (job, state) select unnest(%s::bigint[]), '1'", members
    )

    await past.prune("7d")

    assert await past.mentions(run) == {}
    assert await stage.sql("select * from rota.checkpoints") == []


async def test_retried_run_resumes_from_its_checkpoint(stage: Stage) -> None:
    batch = await stage.held(1)
    await store_checkpoint(stage, batch, "7")
    await stage.finish(batch, "failed")

    await stage.run(runs.retry(batch.jobs[0]))

    assert (await stage.claim(await stage.worker())).members[0].checkpoint == "7"
