"""In which order locks are taken, and how strong they are.

Finding 5: the order within one statement is not the textual one, and changed when a `returning` was
added. So it is probed: while a statement waits at one lock, `nowait` says which others it holds already.
"""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.errors import LockNotAvailable

from rota.store import claims, jobs, runs
from rota.store.query import Query

from .stage import Connection, Stage


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
    """A session that keeps one claim locked until it is closed."""
    holder = await stage.connect()
    await stage.sql("begin", on=holder)
    await stage.sql("select from rota.claims where id = %s for update", claim, on=holder)
    return holder


@pytest.mark.parametrize("statement", ["complete", "hold", "seize"])
@pytest.mark.parametrize("given", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
async def test_claims_are_locked_from_the_lowest_id_up(
    stage: Stage, statement: str, given: list[int]
) -> None:
    worker, ids, members = await three_claims(stage)
    named = [ids[number] for number in given]
    queries: dict[str, Query[Any]] = {
        "complete": jobs.complete(worker, named, members, [None] * 3, [0.0] * 3),
        "hold": claims.hold(worker, named),
        "seize": claims.seize(worker, named),
    }
    holder = await hold_one(stage, ids[1])

    async with stage.engine.transaction():
        locking = stage.meanwhile(stage.run(queries[statement]))
        await stage.waits(stage.engine, holder)

        assert not await is_free(stage, ids[0], "share")
        assert await is_free(stage, ids[2])

        await stage.sql("rollback", on=holder)
        await locking


async def test_completing_locks_the_claim_before_it_writes_an_outcome(stage: Stage) -> None:
    worker, ids, members = await three_claims(stage)
    holder = await hold_one(stage, ids[0])
    completing = stage.meanwhile(stage.complete_all(worker, ids, members))
    await stage.waits(stage.engine, holder)

    # Were the outcome written already, this would wait for it: with nothing to wait for, it is not.
    probe = await stage.connect()
    await stage.sql("set lock_timeout = '100ms'", on=probe)
    async with probe.transaction(force_rollback=True):
        await stage.sql(
            "insert into rota.outcomes (job, state, attempt) select id, 'failed', 1 from rota.jobs",
            on=probe,
        )

    await stage.sql("rollback", on=holder)
    assert await completing == []


async def test_completing_is_not_stopped_by_a_transaction_that_pins_the_claim(stage: Stage) -> None:
    """Finding 4: the user's own transaction holds `for key share`; its neighbours go on."""
    batch = await stage.held(2)
    pinning = await stage.connect()

    async with pinning.transaction():
        await stage.sql("select from rota.claims for key share", on=pinning)
        assert await stage.complete(batch, batch.jobs[:1]) == []


async def test_handing_back_waits_for_a_transaction_that_pins_the_claim(stage: Stage) -> None:
    """Finding 4: while the user's own transaction is under way nobody may take the job away."""
    batch = await stage.held(2)
    pinning = await stage.connect()

    async with pinning.transaction():
        await stage.sql("select from rota.claims for key share", on=pinning)
        # Only one of the two: the claim itself stays, and is merely changed.
        giving = stage.meanwhile(stage.give_back(batch, batch.jobs[:1]))
        await stage.waits(stage.engine, pinning)

    assert await giving == ["default"]


async def test_cancelling_waits_for_a_transaction_that_pins_the_claim(stage: Stage) -> None:
    batch = await stage.held(1)
    pinning, canceller = await stage.connect(), await stage.connect()

    async with pinning.transaction():
        await stage.sql("select from rota.claims for key share", on=pinning)
        cancelling = stage.meanwhile(stage.run(runs.cancel(batch.jobs[0]), canceller))
        await stage.waits(canceller, pinning)

    assert await cancelling == ["requested"]


async def test_a_claim_that_is_held_is_not_completed_meanwhile(stage: Stage) -> None:
    batch = await stage.held(1)
    holder = await stage.connect(engine=True)

    async with holder.transaction():
        await stage.run(claims.hold(batch.worker, [batch.id]), holder)
        completing = stage.meanwhile(stage.complete(batch))
        await stage.waits(stage.engine, holder)

    assert await completing == []
