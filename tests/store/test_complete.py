"""Completion: claims → outcomes. Accepted only from the job's holder, and only once."""

from __future__ import annotations

from rota.store import claims, jobs
from rota.store.jobs import MoveResult
from rota.store.query import Query
from support.stage import Batch, Connection, Stage


def complete(batch: Batch, which: list[int] | None = None) -> Query[MoveResult]:
    given = batch.jobs if which is None else which
    return jobs.complete(
        batch.worker,
        [batch.id] * len(given),
        given,
        [f'{{"job":{job}}}' for job in given],
        [job / 4 for job in given],
    )


async def refused(
    stage: Stage, query: Query[MoveResult], on: Connection | None = None
) -> list[int]:
    [moved] = await stage.run(query, on)
    return moved.jobs


async def test_complete_records_outcomes_and_deletes_the_claim(stage: Stage) -> None:
    batch = await stage.held(3)

    [moved] = await stage.run(complete(batch))

    assert moved == MoveResult([], [], [], False)
    assert await stage.sql("select id from rota.claims") == []
    assert await stage.sql(
        "select job, claim, worker, state::text, attempt, result ->> 'job', seconds, error"
        "  from rota.outcomes order by job"
    ) == [
        (job, batch.id, batch.worker, "succeeded", 1, str(job), job / 4, None) for job in batch.jobs
    ]


async def test_complete_outcome_has_the_attempt_number(stage: Stage) -> None:
    await stage.start_several(2)
    await stage.sql("update rota.queued set attempt = job + 4")
    batch = await stage.claim(await stage.worker())

    await stage.run(complete(batch))

    assert await stage.sql("select job, attempt from rota.outcomes order by job") == [
        (job, job + 4) for job in batch.jobs
    ]


async def test_complete_none_result_differs_from_json_null(stage: Stage) -> None:
    batch = await stage.held(2)

    await stage.run(jobs.complete(batch.worker, [batch.id] * 2, batch.jobs, [None, "null"], [0, 0]))

    assert await stage.sql(
        "select result is null, result::text from rota.outcomes order by job"
    ) == [(True, None), (False, "null")]


async def test_complete_some_jobs_keeps_claim_arrays_aligned(stage: Stage) -> None:
    await stage.start_several(6)
    await stage.sql("update rota.queued set attempt = job * 2, crashes = job * 3, seq = job * 5")
    batch = await stage.claim(await stage.worker())

    await stage.run(complete(batch, [5, 1, 4]))

    assert await stage.sql("select jobs, attempts, crashes, seqs from rota.claims") == [
        ([2, 3, 6], [4, 6, 12], [6, 9, 18], [10, 15, 30])
    ]


async def test_complete_under_wrong_claim_of_same_worker_is_refused(stage: Stage) -> None:
    """Both claims belong to the worker and both are named, but each for the other claim's job."""
    await stage.start_several(2)
    worker = await stage.worker()
    first, second = await stage.claim(worker, 1), await stage.claim(worker, 1)
    crossed = [*second.jobs, *first.jobs]

    refused = await stage.complete_all(worker, [first.id, second.id], crossed)

    assert sorted(refused) == sorted(crossed)
    assert await stage.sql("select job from rota.outcomes") == []


async def test_complete_accepts_jobs_of_several_claims(stage: Stage) -> None:
    await stage.start_several(6)
    worker = await stage.worker()
    batches = [await stage.claim(worker, 2) for _ in range(3)]
    given = [batches[0].jobs[0], *batches[1].jobs, batches[2].jobs[1]]

    under = [batches[number].id for number in (0, 1, 1, 2)]
    [moved] = await stage.run(jobs.complete(worker, under, given, [None] * 4, [0.0] * 4))

    assert moved.jobs == []
    assert await stage.sql("select id, jobs from rota.claims order by id") == [
        (batches[0].id, [batches[0].jobs[1]]),
        (batches[2].id, [batches[2].jobs[0]]),
    ]


async def test_complete_refuses_only_jobs_not_in_the_claim(
    stage: Stage,
) -> None:
    batch = await stage.held(2)
    others = await stage.held(1)

    [moved] = await stage.run(complete(batch, [*batch.jobs, *others.jobs, 12345]))

    assert sorted(moved.jobs) == sorted([*others.jobs, 12345])
    assert await stage.sql("select job from rota.outcomes order by job") == batch.jobs
    assert await stage.held_by(others.id) == others.jobs


async def test_complete_twice_is_refused_and_keeps_first_outcome(stage: Stage) -> None:
    batch = await stage.held(2)
    await stage.run(complete(batch))
    before = await stage.everything()

    [moved] = await stage.run(
        jobs.complete(batch.worker, [batch.id] * 2, batch.jobs, ['"again"'] * 2, [9.0] * 2)
    )

    assert sorted(moved.jobs) == batch.jobs
    assert await stage.everything() == before


async def test_recorded_lists_jobs_written_under_the_claim(stage: Stage) -> None:
    """A completion with a lost answer is sent again; a refusal then means that it was accepted before."""
    batch = await stage.held(3)
    done, failed, open_ = batch.jobs
    await stage.run(complete(batch, [done]))
    await stage.run(jobs.retry(batch.worker, [batch.id], [failed], [60.0], ["{}"], [0.0]))

    assert set(await stage.run(jobs.recorded(batch.jobs, [batch.id]))) == {done, failed}
    assert await stage.run(jobs.recorded(batch.jobs, [batch.id + 1])) == []
    assert await stage.place(open_) == "running"


async def test_complete_returned_job_accepts_only_the_new_holder(
    stage: Stage,
) -> None:
    """Finding 2: a claim that only counts its open jobs would do the opposite."""
    batch = await stage.held(2)
    moved, kept = batch.jobs
    await stage.give_back(batch, [moved])
    again = await stage.claim(await stage.worker())

    assert await refused(stage, complete(batch, [moved, kept])) == [moved]
    assert await refused(stage, complete(again)) == []

    assert await stage.sql("select job, claim from rota.outcomes order by job") == [
        (moved, again.id),
        (kept, batch.id),
    ]


async def test_complete_after_waiting_for_return_uses_current_claim(
    stage: Stage,
) -> None:
    """Findings 1 and 3: the completion's snapshot is older than the lock it waited for."""
    batch = await stage.held(3)
    moved, kept, left = batch.jobs
    other = await stage.connect(engine=True)

    async with other.transaction():
        await stage.give_back(batch, [moved], on=other)
        completing = stage.meanwhile(refused(stage, complete(batch, [moved, kept])))
        await stage.waits(stage.engine, other)

    assert await completing == [moved]
    assert await stage.held_by(batch.id) == [left]
    assert await stage.place(moved) == "queued"
    assert await stage.place(kept) == "succeeded"


async def test_complete_after_waiting_for_emptied_claim_is_refused(stage: Stage) -> None:
    batch = await stage.held(2)
    other = await stage.connect(engine=True)

    async with other.transaction():
        await stage.give_back(batch, on=other)
        completing = stage.meanwhile(refused(stage, complete(batch)))
        await stage.waits(stage.engine, other)

    assert sorted(await completing) == batch.jobs
    assert await stage.sql("select job from rota.outcomes") == []


async def test_two_concurrent_completes_of_one_claim_both_count(stage: Stage) -> None:
    """Finding 3: the remaining jobs of the claim are computed from the locked row."""
    batch = await stage.held(4)
    other = await stage.connect(engine=True)

    async with other.transaction():
        await stage.run(complete(batch, batch.jobs[:2]), other)
        completing = stage.meanwhile(refused(stage, complete(batch, batch.jobs[2:])))
        await stage.waits(stage.engine, other)

    assert await completing == []
    assert await stage.sql("select id from rota.claims") == []
    assert await stage.sql("select job from rota.outcomes order by job") == batch.jobs


async def test_return_to_queue_after_waiting_skips_completed_jobs(
    stage: Stage,
) -> None:
    """Finding 1: 2,337 of 10,356 returned jobs were already done when `outcomes` was read instead."""
    batch = await stage.held(4)
    other = await stage.connect(engine=True)

    async with other.transaction():
        await stage.run(complete(batch, batch.jobs[:3]), other)
        giving = stage.meanwhile(stage.give_back(batch))
        await stage.waits(stage.engine, other)

    assert await giving == ["default"]
    assert await stage.sql("select job from rota.queued") == batch.jobs[3:]
    assert await stage.sql("select id from rota.claims") == []


async def test_complete_same_claims_in_any_order_does_not_deadlock(
    stage: Stage,
) -> None:
    await stage.start_several(4)
    worker = await stage.worker()
    one, two = await stage.claim(worker, 2), await stage.claim(worker, 2)
    holder, other = await stage.connect(engine=True), await stage.connect(engine=True)

    def both(first: Batch, second: Batch, number: int) -> Query[MoveResult]:
        given = [first.jobs[number], second.jobs[number]]
        return jobs.complete(worker, [first.id, second.id], given, [None] * 2, [0.0] * 2)

    async with holder.transaction():
        await stage.run(claims.lock(worker, [one.id]), holder)
        up = stage.meanwhile(refused(stage, both(one, two, 0)))
        await stage.waits(stage.engine, holder)
        down = stage.meanwhile(refused(stage, both(two, one, 1), other))
        await stage.waits(other, stage.engine)  # next in line for the lower claim
        # The lower claim is always locked first, so neither statement holds the higher one yet.
        [free] = await stage.sql(
            "select id from rota.claims where id = %s for update nowait", two.id
        )

    assert (free, await up, await down) == (two.id, [], [])
