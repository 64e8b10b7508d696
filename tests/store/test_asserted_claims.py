"""A user's transaction that holds its job, against every session that would take the job back.

Finding 4: in a shared claim, one open transaction blocks the other jobs of the claim, and two of them
deadlock. So the job has its own claim by then.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.errors import LockNotAvailable

from rota.store import claims, runs
from support import flows
from support.lost_workers import (
    NOTHING,
    declare_dead,
    lose_worker,
    orphans,
    quarantine,
    queued_rows,
    reap,
    split,
)
from support.stage import Batch, Connection, Stage


async def lock_shared(stage: Stage, batch: Batch, on: Connection) -> list[int]:
    return await stage.run(claims.lock_shared(batch.worker, batch.id, batch.jobs[0]), on)


async def split_and_lock(stage: Stage, batch: Batch, job: int) -> tuple[Batch, Connection]:
    """Split a job off its batch and pin it in a transaction that stays open."""
    own = await split(stage, batch, job)
    session = await stage.connect()
    await stage.sql("begin", on=session)
    assert await lock_shared(stage, own, session) == [own.id]
    return own, session


async def is_free(stage: Stage, claim: int) -> bool:
    try:
        async with stage.engine.transaction():
            await stage.sql(
                "select from rota.claims where id = %s for update nowait", claim, on=stage.engine
            )
    except LockNotAvailable:
        return False
    return True


async def test_asserted_claim_does_not_block_other_jobs_of_batch(stage: Stage) -> None:
    batch = await stage.held(6)
    done, failed, again, back, put_away = batch.jobs[1:]
    own, session = await split_and_lock(stage, batch, batch.jobs[0])

    async with asyncio.timeout(60):
        assert await stage.complete(batch, [done]) == []
        assert await stage.finish(batch, "failed", [failed]) == [failed]
        assert (await stage.retry(batch, [again])).jobs == [again]
        assert await stage.give_back(batch, [back]) == ["default"]
        # The last job: the shared claim is deleted.
        last = Batch(batch.worker, batch.id, [put_away], [])
        assert (await quarantine(stage, last)).jobs == [put_away]

    assert await stage.sql("select id from rota.claims") == [own.id]
    await stage.sql("commit", on=session)


async def test_two_asserted_claims_of_one_batch_both_complete(stage: Stage) -> None:
    """In one claim each would wait for the other: to delete it, or to change it under the other's pin."""
    batch = await stage.held(2)
    (first, one), (second, two) = [await split_and_lock(stage, batch, job) for job in batch.jobs]

    async with asyncio.timeout(60):
        assert await stage.complete(first, on=one) == []
        assert await stage.complete(second, on=two) == []
        await stage.sql("commit", on=one)
        await stage.sql("commit", on=two)

    assert await stage.sql("select count(*) from rota.outcomes") == [2]
    assert await stage.sql("select * from rota.claims") == []


async def test_many_asserting_transactions_complete_beside_the_batch(own_stage: Stage) -> None:
    """Splits, pins, and ends inside and outside of transactions run at once. Each session ends its job
    before any of them commits."""
    stage = own_stage
    batch = await stage.held(60)
    sessions = [await stage.connect(engine=True) for _ in range(6)]
    plain = await stage.connect(engine=True)
    all_there = asyncio.Barrier(len(sessions))

    async def inside(on: Connection, jobs: list[int]) -> None:
        for job in jobs:
            own = await split(stage, batch, job, on=on)
            async with on.transaction():
                assert await lock_shared(stage, own, on) == [own.id]
                await all_there.wait()
                assert await stage.complete(own, on=on) == []
                await all_there.wait()

    async def outside(jobs: list[int]) -> None:
        for job in jobs:
            async with plain.transaction():
                assert await stage.complete(batch, [job], on=plain) == []
                await asyncio.sleep(0.001)

    async with asyncio.timeout(60):
        await asyncio.gather(
            outside(batch.jobs[:24]),
            *(
                inside(each, batch.jobs[24 + number * 6 : 30 + number * 6])
                for number, each in enumerate(sessions)
            ),
        )

    assert await stage.sql("select count(*) from rota.outcomes") == [60]
    assert await stage.sql("select * from rota.claims") == []


async def test_reap_skips_asserted_claim_and_takes_the_rest(stage: Stage) -> None:
    batch, other = await stage.held(3), await stage.held(2)
    own, session = await split_and_lock(stage, batch, batch.jobs[1])
    await declare_dead(stage, batch.worker, other.worker)

    async with asyncio.timeout(60):
        taken = [await reap(stage, claim) for claim in await orphans(stage)]

    assert NOTHING in taken
    assert sorted(job for each in taken for job in each.jobs) == sorted(
        [batch.jobs[0], batch.jobs[2], *other.jobs]
    )
    assert await orphans(stage) == [own.id]
    await stage.sql("rollback", on=session)
    assert (await reap(stage, own.id)).jobs == own.jobs


async def test_asserted_claim_of_dead_worker_can_complete(stage: Stage) -> None:
    """The transaction outlives its worker's death: the job is not reaped, and completes."""
    batch = await stage.held(2)
    own, session = await split_and_lock(stage, batch, batch.jobs[0])
    await declare_dead(stage, batch.worker)
    assert await reap(stage, own.id) == NOTHING

    assert await stage.complete(own, on=session) == []
    await stage.sql("commit", on=session)

    assert await stage.place(own.jobs[0]) == "succeeded"
    assert await reap(stage, own.id) == NOTHING


async def test_lock_shared_on_reaped_job_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await lose_worker(stage, batch)
    session = await stage.connect()

    async with session.transaction():
        assert await lock_shared(stage, batch, session) == []


async def test_lock_shared_during_reap_waits_and_is_refused(stage: Stage) -> None:
    batch = await stage.held(1)
    await declare_dead(stage, batch.worker)
    reaping, session = await stage.connect(engine=True), await stage.connect()

    async with reaping.transaction():
        assert (await reap(stage, batch.id, on=reaping)).jobs == batch.jobs
        pinning = stage.meanwhile(lock_shared(stage, batch, session))
        await stage.waits(session, reaping)

    assert await pinning == []


async def test_cancel_of_asserted_claim_is_applied_when_reaped(
    stage: Stage,
) -> None:
    laid = await flows.start(stage, {"a": [], "b": ["a"]})
    batch = await flows.claim(stage, await stage.worker())
    own, session = await split_and_lock(stage, batch, batch.jobs[0])

    async with asyncio.timeout(60):
        assert await flows.cancel(stage, laid.run) == "requested"
    await declare_dead(stage, own.worker)
    assert await reap(stage, own.id) == NOTHING
    await stage.sql("rollback", on=session)

    assert (await reap(stage, own.id)).runs == [laid.run]
    assert set((await flows.outcomes(stage, laid)).values()) == {"cancelled"}


# SQL functions for users


async def assert_claim(stage: Stage, job: int, claim: int, on: Connection) -> list[Any]:
    return await stage.sql("select rota.assert_claim(%s, %s) is null", job, claim, on=on)


async def test_assert_claim_blocks_the_reaper(stage: Stage) -> None:
    batch = await stage.held(1)
    session = await stage.connect()

    async with session.transaction():
        await assert_claim(stage, batch.jobs[0], batch.id, session)
        assert not await is_free(stage, batch.id)
        await declare_dead(stage, batch.worker)
        assert await reap(stage, batch.id) == NOTHING

    assert await is_free(stage, batch.id)
    assert (await reap(stage, batch.id)).jobs == batch.jobs


@pytest.mark.parametrize("why", ["taken away", "done", "another's", "no such job", "split off"])
async def test_assert_claim_not_held_raises_and_rolls_back(stage: Stage, why: str) -> None:
    batch = await stage.held(2)
    job, claim = batch.jobs[0], batch.id
    match why:
        case "taken away":
            await lose_worker(stage, batch)
        case "done":
            await stage.complete(batch, [job])
        case "another's":
            claim = (await stage.held(1)).id
        case "no such job":
            job = 12345
        case "split off":
            await split(stage, batch, job)
    session = await stage.connect()

    async def work() -> None:
        async with session.transaction():
            await stage.sql("insert into rota.waiters values (1, 'me')", on=session)
            await assert_claim(stage, job, claim, session)

    with pytest.raises(psycopg.Error, match=f"job {job} is no longer held under claim") as no:
        await work()

    assert no.value.sqlstate == "RT002"
    assert await stage.sql("select * from rota.waiters") == []


async def test_assert_claim_during_reap_waits_and_raises(stage: Stage) -> None:
    batch = await stage.held(1)
    await declare_dead(stage, batch.worker)
    reaping, session = await stage.connect(engine=True), await stage.connect()

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        asserting = stage.meanwhile(assert_claim(stage, batch.jobs[0], batch.id, session))
        await stage.waits(session, reaping)

    with pytest.raises(psycopg.Error, match="no longer held"):
        await asserting


async def test_return_to_queue_waits_for_asserting_transaction(stage: Stage) -> None:
    batch = await stage.held(1)
    own, session = await split_and_lock(stage, batch, batch.jobs[0])

    giving = stage.meanwhile(stage.give_back(own))
    await stage.waits(stage.engine, session)
    assert await stage.complete(own, on=session) == []
    await stage.sql("commit", on=session)

    assert await giving == []
    assert await queued_rows(stage, "seq") == {}


async def test_cancel_during_completing_transaction_returns_succeeded(stage: Stage) -> None:
    batch = await stage.held(1)
    own, session = await split_and_lock(stage, batch, batch.jobs[0])
    canceller = await stage.connect()
    assert await stage.complete(own, on=session) == []

    cancelling = stage.meanwhile(stage.run(runs.cancel(own.jobs[0]), canceller))
    await stage.waits(canceller, session)
    await stage.sql("commit", on=session)

    assert await cancelling == ["succeeded"]
    assert await stage.sql("select * from rota.cancels") == []
