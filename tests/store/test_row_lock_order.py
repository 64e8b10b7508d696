"""Order and strength of row locks.

Finding 5: the order within one statement is not the textual one, and changed when a `returning` was
added. So it is probed: while a statement waits at one lock, `nowait` shows which other locks it holds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg.errors import LockNotAvailable

from rota.store import claims, jobs, runs, workers
from rota.store.query import Query
from support import flows
from support.lost_workers import NOTHING, declare_dead, observe, reap, split
from support.stage import Connection, Stage


async def is_free(stage: Stage, claim: int, strength: str = "update") -> bool:
    try:
        async with stage.watch.transaction():
            await stage.sql(f"select from rota.claims where id = {claim} for {strength} nowait")
    except LockNotAvailable:
        return False
    return True


async def three_claims(stage: Stage) -> tuple[int, list[int], list[int]]:
    await stage.start_several(3)
    worker = await stage.worker()
    batches = [await stage.claim(worker, 1) for _ in range(3)]
    return worker, [batch.id for batch in batches], [batch.jobs[0] for batch in batches]


async def hold_one(stage: Stage, claim: int) -> Connection:
    """Open a session that keeps one claim locked until it is closed."""
    holder = await stage.connect()
    await stage.sql("begin", on=holder)
    await stage.sql("select from rota.claims where id = %s for update", claim, on=holder)
    return holder


@pytest.mark.parametrize("statement", ["complete", "lock", "finish", "return"])
@pytest.mark.parametrize("given", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
async def test_claims_are_locked_by_rising_id(
    stage: Stage, statement: str, given: list[int]
) -> None:
    worker, ids, members = await three_claims(stage)
    named = [ids[number] for number in given]
    queries: dict[str, Query[Any]] = {
        "complete": jobs.complete(worker, named, members, [None] * 3, [0.0] * 3),
        "lock": claims.lock(worker, named),
        "finish": jobs.finish(worker, named, members, ["failed"] * 3, [None] * 3, [0.0] * 3),
        "return": jobs.return_to_queue(worker, named, members),
    }
    holder = await hold_one(stage, ids[1])

    async with stage.engine.transaction():
        locking = stage.meanwhile(stage.run(queries[statement]))
        await stage.waits(stage.engine, holder)

        assert not await is_free(stage, ids[0], "share")
        assert await is_free(stage, ids[2])

        await stage.sql("rollback", on=holder)
        await locking


async def test_complete_locks_claim_before_writing_outcome(stage: Stage) -> None:
    worker, ids, members = await three_claims(stage)
    holder = await hold_one(stage, ids[0])
    completing = stage.meanwhile(stage.complete_all(worker, ids, members))
    await stage.waits(stage.engine, holder)

    # This insert would block if the outcome were already written. It does not block.
    probe = await stage.connect()
    await stage.sql("set lock_timeout = '100ms'", on=probe)
    async with probe.transaction(force_rollback=True):
        await stage.sql(
            "insert into rota.outcomes (job, state, attempt) select id, 'failed', 1 from rota.jobs",
            on=probe,
        )

    await stage.sql("rollback", on=holder)
    assert await completing == []


async def test_complete_of_asserted_claim_does_not_wait(stage: Stage) -> None:
    """Finding 4: the user's own transaction holds `for key share`; other jobs of the claim can complete."""
    batch = await stage.held(2)
    pinning = await stage.connect()

    async with pinning.transaction():
        await stage.sql("select from rota.claims for key share", on=pinning)
        assert await stage.complete(batch, batch.jobs[:1]) == []


async def test_return_to_queue_of_asserted_claim_waits(stage: Stage) -> None:
    """Finding 4: a job must not be taken back while the user's own transaction is open."""
    batch = await stage.held(2)
    pinning = await stage.connect()

    async with pinning.transaction():
        await stage.sql("select from rota.claims for key share", on=pinning)
        # Only one of the two jobs: the claim remains, and is only updated.
        giving = stage.meanwhile(stage.give_back(batch, batch.jobs[:1]))
        await stage.waits(stage.engine, pinning)

    assert await giving == ["default"]


async def test_cancel_of_asserted_claim_does_not_wait(stage: Stage) -> None:
    """A cancel is only a request; the job's own transaction may take its time."""
    batch = await stage.held(1)
    pinning, canceller = await stage.connect(), await stage.connect()

    async with pinning.transaction():
        await stage.sql("select from rota.claims for key share", on=pinning)
        assert await stage.run(runs.cancel(batch.jobs[0]), canceller) == ["requested"]


async def test_complete_of_locked_claim_waits(stage: Stage) -> None:
    batch = await stage.held(1)
    holder = await stage.connect(engine=True)

    async with holder.transaction():
        await stage.run(claims.lock(batch.worker, [batch.id]), holder)
        completing = stage.meanwhile(stage.complete(batch))
        await stage.waits(stage.engine, holder)

    assert await completing == []


# Lost workers


async def test_reap_locks_claim_before_releasing_successors(stage: Stage) -> None:
    """The reaper stops where it releases successors. By then the claim is locked, also against a pin, and
    later waiting rows are not."""
    laid = await flows.start(stage, {"a": [], "b": ["a"]})
    batch = await flows.claim(stage, await stage.worker())
    await flows.cancel(stage, laid["a"])
    await declare_dead(stage, batch.worker)
    holder = await stage.connect()

    async with holder.transaction():
        await stage.sql("select from rota.waiting where job = %s for update", laid["b"], on=holder)
        reaping = stage.meanwhile(reap(stage, batch.id))
        await stage.waits(stage.engine, holder)

        assert not await is_free(stage, batch.id, "key share")
        # Waiting rows are locked in the order of ids: the run's row came first.
        assert not await flows.is_free(stage, laid.run)

    assert (await reaping).runs == [laid.run]


async def test_reap_skips_claim_with_any_row_lock(stage: Stage) -> None:
    batch = await stage.held(1)
    await declare_dead(stage, batch.worker)
    holder = await stage.connect()

    for strength in ("key share", "share", "no key update", "update"):
        async with holder.transaction():
            await stage.sql(f"select from rota.claims for {strength}", on=holder)
            async with asyncio.timeout(60):
                assert await reap(stage, batch.id) == NOTHING


@pytest.mark.parametrize("lock", ["hold", "cancel", "complete", "split"])
async def test_asserted_claim_does_not_block_lock_cancel_complete_split(
    stage: Stage, lock: str
) -> None:
    batch = await stage.held(2)
    pinning, other = await stage.connect(), await stage.connect(engine=True)

    async with pinning.transaction():
        await stage.run(claims.lock_shared(batch.worker, batch.id, batch.jobs[0]), pinning)
        async with asyncio.timeout(60):
            match lock:
                case "hold":
                    await stage.run(claims.lock(batch.worker, [batch.id]), other)
                case "cancel":
                    await stage.run(runs.cancel(batch.jobs[1]), other)
                case "complete":
                    await stage.complete(batch, batch.jobs[1:], on=other)
                case "split":
                    await split(stage, batch, batch.jobs[1], on=other)


async def test_beat_and_mark_dead_lock_only_the_worker_row(stage: Stage) -> None:
    batch, other = await stage.held(1), await stage.held(1)
    session = await stage.connect()

    queries: list[Query[Any]] = [
        workers.beat(batch.worker, None),
        workers.mark_dead([await observe(stage, batch.worker)]),
    ]
    for query in queries:
        async with session.transaction(force_rollback=True):
            assert len(await stage.run(query, session)) == 1
            assert await is_free(stage, batch.id)
            async with asyncio.timeout(60):
                assert await stage.complete(other, []) == []
                assert len(await stage.run(workers.beat(other.worker, None))) == 1


@pytest.mark.parametrize("given", [[0, 1, 2], [2, 0, 1]])
async def test_mark_dead_skips_locked_worker_row_in_any_order(
    stage: Stage, given: list[int]
) -> None:
    ids = [await stage.worker() for _ in range(3)]
    looked = [await observe(stage, ids[number]) for number in given]
    holder = await stage.connect()

    async with holder.transaction():
        await stage.sql(
            "select from rota.workers where id = %s for no key update", ids[1], on=holder
        )
        async with asyncio.timeout(60):
            declared = await stage.run(workers.mark_dead(looked))

    assert sorted(each.worker for each in declared) == [ids[0], ids[2]]
