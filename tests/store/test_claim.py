"""Claim: queued → claims. By priority, then age; no job is claimed by two sessions."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from rota.store import claims, jobs
from support.stage import Stage


async def test_claim_orders_jobs_by_priority_then_age(stage: Stage) -> None:
    low = await stage.start_several(2)
    high = await stage.start_several(2, priority=9)
    middle = await stage.start_several(2, priority=4)

    batch = await stage.claim(await stage.worker())

    assert batch.jobs == [*high, *middle, *low]


async def test_claim_returns_job_details_for_the_worker(stage: Stage) -> None:
    run = await stage.start("work", queue="images", args='{"a": "ü"}', options='{"timeout": 3}')

    [found] = (await stage.claim(await stage.worker(), queues=["default", "images"])).members

    assert (found.job, found.task, found.queue, found.attempt, found.crashes) == (
        *(run, "work", "images", 1, 0),
    )
    assert (found.args, found.options, found.expired) == ('{"a": "ü"}', '{"timeout": 3}', None)


async def test_claim_reads_lanes_in_given_order(stage: Stage) -> None:
    first = await stage.start(queue="a")
    second = await stage.start(queue="b")
    worker = await stage.worker()

    query = jobs.claim(worker, uuid4(), ["work"], ["b", "a"], [0, 0], [0, 0], 10)
    found = await stage.run(query)

    assert [(each.job, each.lane) for each in found] == [(second, 1), (first, 2)]


async def test_claim_skips_unknown_tasks(stage: Stage) -> None:
    await stage.start("newer")
    known = await stage.start("work")
    worker = await stage.worker()

    assert (await stage.claim(worker)).jobs == [known]
    assert (await stage.claim(worker)).jobs == []
    assert (await stage.claim(worker, tasks=["newer", "work"])).jobs != []


async def test_claim_skips_unserved_queues(stage: Stage) -> None:
    await stage.start(queue="elsewhere")

    assert (await stage.claim(await stage.worker())).jobs == []


async def test_claim_moves_jobs_from_queued_to_claims(stage: Stage) -> None:
    ids = await stage.start_several(3)
    worker = await stage.worker()
    nonce = uuid4()

    batch = await stage.claim(worker, nonce=nonce)

    assert await stage.sql("select job from rota.queued") == []
    assert await stage.sql("select id, worker, nonce, jobs from rota.claims") == [
        (batch.id, worker, nonce, ids)
    ]


async def test_claim_without_jobs_writes_nothing(stage: Stage) -> None:
    batch = await stage.claim(await stage.worker())

    assert batch.members == []
    assert await stage.sql("select id from rota.claims") == []


async def test_claim_arrays_stay_aligned(stage: Stage) -> None:
    ids = await stage.start_several(4)
    await stage.sql(
        "update rota.queued set attempt = job * 2, crashes = job * 3, seq = job * 5 + 100"
    )

    batch = await stage.claim(await stage.worker())

    assert [(each.job, each.attempt, each.crashes, each.seq) for each in batch.members] == [
        (job, job * 2, job * 3, job * 5 + 100) for job in ids
    ]
    [written] = await stage.sql("select jobs, attempts, crashes, seqs from rota.claims")
    assert list(zip(*written, strict=True)) == [
        (job, job * 2, job * 3, job * 5 + 100) for job in ids
    ]


async def test_claim_limit_applies_across_all_lanes(stage: Stage) -> None:
    await stage.start_several(5)
    await stage.start_several(5, priority=3)
    worker = await stage.worker()

    assert len((await stage.claim(worker, 7)).jobs) == 7
    assert len((await stage.claim(worker, 7)).jobs) == 3


async def test_claim_limit_holds_with_nested_loop_plan(stage: Stage) -> None:
    """Finding B40: a limiting sub-select that is run again for each row claims more than its limit."""
    await stage.start_several(10)
    for setting in ("hashjoin", "mergejoin", "material", "hashagg", "sort", "memoize"):
        await stage.sql(f"set enable_{setting} = off", on=stage.engine)
    worker = await stage.worker()

    for _ in range(3):
        assert len((await stage.claim(worker, 1)).jobs) == 1
    assert len(await stage.sql("select job from rota.queued")) == 7


async def test_claim_cursor_hides_older_jobs(stage: Stage) -> None:
    ids = await stage.start_several(5)
    worker = await stage.worker()

    assert (await stage.claim(worker, floor=ids[3])).jobs == ids[3:]
    assert (await stage.claim(worker, floor=0)).jobs == ids[:3]


async def test_claim_expired_job_is_marked_expired(stage: Stage) -> None:
    await stage.start()
    await stage.sql("update rota.jobs set expires = rota.clock() - interval '1 s'")

    [found] = (await stage.claim(await stage.worker())).members

    assert found.expired is True


async def test_claim_skips_jobs_locked_by_another_session(stage: Stage) -> None:
    ids = await stage.start_several(4)
    one, two = await stage.worker(), await stage.worker()
    slow, quick = await stage.connect(engine=True), await stage.connect(engine=True)

    async with slow.transaction():
        mine = await stage.claim(one, 2, on=slow)
        async with asyncio.timeout(60):
            yours = await stage.claim(two, on=quick)

        assert (mine.jobs, yours.jobs) == (ids[:2], ids[2:])
        assert (await stage.claim(two, on=quick)).jobs == []


async def test_claim_rolled_back_leaves_jobs_claimable(stage: Stage) -> None:
    ids = await stage.start_several(2)
    one, two = await stage.worker(), await stage.worker()
    broken = await stage.connect(engine=True)

    async with broken.transaction(force_rollback=True):
        await stage.claim(one, on=broken)

    assert (await stage.claim(two)).jobs == ids


async def test_claim_by_many_sessions_never_shares_a_job(stage: Stage) -> None:
    """Each session keeps its transaction open for a moment before it commits, to widen the race."""
    ids = await stage.start_several(120)
    sessions = [await stage.connect(engine=True) for _ in range(6)]
    taken: list[list[int]] = []

    async def work(number: int) -> None:
        worker = await stage.worker()
        while True:
            async with sessions[number].transaction():
                batch = await stage.claim(worker, 7, on=sessions[number])
                await asyncio.sleep(0.002)
            if not batch.jobs:
                return
            taken.append(batch.jobs)

    workers = [asyncio.create_task(work(number)) for number in range(6)]
    await asyncio.gather(*workers)

    assert sorted(job for batch in taken for job in batch) == ids


async def test_claims_by_worker_lists_ids_nonces_and_jobs(stage: Stage) -> None:
    await stage.start_several(3)
    worker, other = await stage.worker(), await stage.worker()
    nonces = [uuid4(), uuid4()]
    batches = [await stage.claim(worker, 1, nonce=nonce) for nonce in nonces]
    await stage.claim(other, 1)

    held = await stage.run(claims.by_worker(worker))

    assert [(each.id, each.nonce, each.jobs) for each in held] == [
        (batch.id, nonce, batch.jobs) for batch, nonce in zip(batches, nonces, strict=True)
    ]
