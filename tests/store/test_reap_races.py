"""The reaper against all other moves of jobs, with commits delayed to let them meet.

Finding 1: a reaper read `outcomes` in the statement that locked the claim, to find unfinished jobs. Of
the 10,356 jobs it returned, 2,337 were done. Only the jobs in the locked claim are unfinished.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rota.store import claims, jobs, runs
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
    suspects,
)
from support.stage import Batch, Connection, Stage


async def test_reap_skips_claim_being_completed_and_takes_rest_later(
    stage: Stage,
) -> None:
    batch = await stage.held(4)
    await declare_dead(stage, batch.worker)
    other = await stage.held(1)
    await declare_dead(stage, other.worker)
    completing = await stage.connect(engine=True)

    async with completing.transaction():
        assert await stage.complete(batch, batch.jobs[:2], on=completing) == []
        async with asyncio.timeout(60):
            assert await reap(stage, batch.id) == NOTHING
            assert (await reap(stage, other.id)).jobs == other.jobs

    assert (await reap(stage, batch.id)).jobs == batch.jobs[2:]
    assert sorted(await queued_rows(stage, "seq")) == sorted([*batch.jobs[2:], *other.jobs])


async def test_complete_by_former_holder_after_reap_is_refused(stage: Stage) -> None:
    """Finding 2: refused while the reaper has not committed, and when a new worker holds the jobs."""
    batch = await stage.held(3)
    await declare_dead(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        assert (await reap(stage, batch.id, on=reaping)).jobs == batch.jobs
        completing = stage.meanwhile(stage.complete(batch))
        await stage.waits(stage.engine, reaping)
    assert sorted(await completing) == batch.jobs

    taken = await suspects(stage, await stage.worker())
    assert sorted(await stage.complete(batch)) == batch.jobs
    assert (await stage.retry(batch)).jobs == []
    assert await stage.give_back(batch) == []
    assert await stage.finish(batch, "failed") == []
    for each in taken:
        assert await stage.complete(each) == []
    assert await stage.sql("select distinct state from rota.outcomes") == ["succeeded"]


async def test_complete_after_partial_reap_accepts_only_remaining_jobs(stage: Stage) -> None:
    """Finding 2, for a claim that remains: a reaper took back some of its jobs."""
    batch = await stage.held(4)
    await declare_dead(stage, batch.worker)
    reaping = await stage.connect(engine=True)

    async with reaping.transaction():
        await reap(stage, batch.id, batch.jobs[1:3], on=reaping)
        completing = stage.meanwhile(stage.complete(batch))
        await stage.waits(stage.engine, reaping)

    assert sorted(await completing) == batch.jobs[1:3]
    assert await stage.sql("select job from rota.outcomes order by job") == [
        batch.jobs[0],
        batch.jobs[3],
    ]


@pytest.mark.parametrize("move", ["retry", "give back", "finish", "quarantine", "split"])
async def test_move_during_reap_waits_and_is_refused(stage: Stage, move: str) -> None:
    batch = await stage.held(2)
    await declare_dead(stage, batch.worker)
    reaping = await stage.connect(engine=True)
    moves: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "retry": lambda: stage.retry(batch),
        "give back": lambda: stage.give_back(batch),
        "finish": lambda: stage.finish(batch, "failed"),
        "quarantine": lambda: quarantine(stage, batch),
        "split": lambda: stage.together(
            claims.lock(batch.worker, [batch.id]), claims.by_job(batch.worker, batch.jobs[0])
        ),
    }

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        moving = stage.meanwhile(moves[move]())
        await stage.waits(stage.engine, reaping)
    answer = await moving

    assert answer in ([], NOTHING, [[], []])
    assert sorted(await queued_rows(stage, "seq")) == batch.jobs


async def test_reap_racing_with_complete_never_requeues_done_jobs(stage: Stage) -> None:
    """Finding 1: many rounds, each with a delayed commit on one side or the other."""
    chance = random.Random(7)
    sides = [await stage.connect(engine=True) for _ in range(3)]
    done: list[int] = []
    back: list[int] = []

    async def complete(batch: Batch, some: list[int], on: Connection) -> None:
        async with on.transaction():
            await asyncio.sleep(chance.choice([0, 0.001, 0.003]))
            refused = await stage.complete(batch, some, on=on)
            done.extend(set(some) - set(refused))
            await asyncio.sleep(chance.choice([0, 0.002, 0.004]))

    async def take_back(batch: Batch, on: Connection) -> None:
        await asyncio.sleep(chance.choice([0, 0.002, 0.004]))
        while True:
            async with on.transaction():
                moved = await reap(stage, batch.id, on=on)
                await asyncio.sleep(chance.choice([0, 0.001]))
            back.extend(moved.jobs)
            if not await stage.sql("select from rota.claims where id = %s", batch.id, on=on):
                return

    rounds = 0
    while rounds < 60 or (min(len(done), len(back)) <= 50 and rounds < 600):
        rounds += 1
        batch = await stage.held(10)
        await declare_dead(stage, batch.worker)
        chance.shuffle(batch.jobs)
        await asyncio.gather(
            complete(batch, batch.jobs[:3], sides[0]),
            complete(batch, batch.jobs[3:7], sides[1]),
            take_back(batch, sides[2]),
        )
        await stage.check()
        # No returned job is done, because none was claimed since.
        assert set(done).isdisjoint(back)
        await stage.sql("delete from rota.queued where suspicion is null")

    assert len(done) + len(back) == 10 * rounds
    assert min(len(done), len(back)) > 50, "both sides must win sometimes"


async def test_reap_by_several_reapers_queues_each_job_once(stage: Stage) -> None:
    workers = [await stage.worker() for _ in range(4)]
    started = await stage.start_several(600)
    for number in range(200):
        await stage.claim(workers[number % 4], 3)
    await declare_dead(stage, *workers)
    sessions = [await stage.connect(engine=True) for _ in range(4)]
    back: Counter[int] = Counter()

    async def take_back_all(on: Connection, order: random.Random) -> None:
        while found := await orphans(stage):
            order.shuffle(found)
            for claim in found:
                back.update((await reap(stage, claim, on=on)).jobs)

    await asyncio.gather(
        *(take_back_all(each, random.Random(number)) for number, each in enumerate(sessions))
    )

    assert back == Counter(started)
    rows = await stage.sql("select job from rota.queued order by job")
    assert rows == started


async def test_reap_of_claim_being_reaped_does_nothing(stage: Stage) -> None:
    batch = await stage.held(2)
    await declare_dead(stage, batch.worker)
    first = await stage.connect(engine=True)

    async with first.transaction():
        assert (await reap(stage, batch.id, on=first)).jobs == batch.jobs
        async with asyncio.timeout(60):
            assert await reap(stage, batch.id) == NOTHING


# Cancel


async def test_cancel_during_reap_cancels_the_job(stage: Stage) -> None:
    batch = await stage.held(2)
    await declare_dead(stage, batch.worker)
    reaping, canceller = await stage.connect(engine=True), await stage.connect()

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        cancelling = stage.meanwhile(stage.run(runs.cancel(batch.jobs[0]), canceller))
        await stage.waits(canceller, reaping)

    assert await cancelling == ["cancelled"]
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert list(await queued_rows(stage, "seq")) == [batch.jobs[1]]
    assert await stage.sql("select * from rota.cancels") == []


async def test_reap_during_cancel_skips_claim_and_cancels_later(stage: Stage) -> None:
    batch = await stage.held(2)
    await declare_dead(stage, batch.worker)
    cancelling = await stage.connect()

    async with cancelling.transaction():
        assert await stage.run(runs.cancel(batch.jobs[0]), cancelling) == ["requested"]
        async with asyncio.timeout(60):
            assert await reap(stage, batch.id) == NOTHING

    await reap(stage, batch.id)
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert list(await queued_rows(stage, "seq")) == [batch.jobs[1]]


async def test_cancel_flow_during_reap_cancels_every_job(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": [], "c": ["a", "b"]})
    worker = await stage.worker()
    batch = await flows.claim(stage, worker)
    await declare_dead(stage, worker)
    reaping, canceller = await stage.connect(engine=True), await stage.connect()

    async with reaping.transaction():
        await reap(stage, batch.id, on=reaping)
        cancelling = stage.meanwhile(flows.cancel(stage, laid.run, canceller))
        await stage.waits(canceller, reaping)

    assert await cancelling == "cancelled"
    assert set((await flows.outcomes(stage, laid)).values()) == {"cancelled"}


# Lost answers


async def test_recorded_ignores_outcomes_written_by_the_reaper(stage: Stage) -> None:
    """A worker with a lost connection queries if its outcome was recorded under its claim."""
    charged, cancelled = await stage.held(1), await stage.held(1)
    await stage.run(runs.cancel(cancelled.jobs[0]), stage.watch)
    await lose_worker(stage, charged)
    await lose_worker(stage, cancelled)

    assert await stage.run(jobs.recorded(charged.jobs, [charged.id])) == []
    assert await stage.run(jobs.recorded(cancelled.jobs, [cancelled.id])) == []


async def test_reap_skips_asserted_claim_and_takes_rest_of_batch(stage: Stage) -> None:
    """Finding 4: a frozen transaction of a user keeps its own job, and no other."""
    batch = await stage.held(5)
    own = await split(stage, batch, batch.jobs[2])
    pinning = await stage.connect()

    async with pinning.transaction():
        assert await stage.run(claims.lock_shared(own.worker, own.id, own.jobs[0]), pinning) == [
            own.id
        ]
        await declare_dead(stage, batch.worker)
        async with asyncio.timeout(60):
            assert await reap(stage, own.id) == NOTHING
            assert (await reap(stage, batch.id)).jobs == [
                job for job in batch.jobs if job != own.jobs[0]
            ]

    assert (await reap(stage, own.id)).jobs == own.jobs
