"""Quarantine of jobs that crashed their workers too often, and their release."""

from __future__ import annotations

import asyncio
import random

import pytest

from rota.store import claims, jobs, runs
from support import flows
from support.lost_workers import (
    HISTORY,
    NOTHING,
    declare_dead,
    lose_worker,
    lost,
    orphans,
    quarantine,
    queued_rows,
    reap,
    split,
    suspect,
    suspects,
)
from support.stage import Connection, Stage


async def start_quarantined(stage: Stage, count: int = 1) -> list[int]:
    """Start jobs and quarantine them."""
    batch = await stage.held(count)
    await quarantine(stage, batch)
    return batch.jobs


async def test_quarantine_stores_the_job_with_its_attempt_and_error(stage: Stage) -> None:
    [job, _] = await lost(stage, 2, priority=3)
    batch = await suspect(stage, await stage.worker())

    moved = await quarantine(stage, batch)

    assert (moved.jobs, moved.queues, moved.runs) == ([job], [], [])
    assert await stage.place(job) == "quarantined"
    [row] = await stage.sql(
        "select job, priority, attempt, crashes, queue, task, error::text from rota.quarantine"
    )
    assert tuple(row) == (job, 3, 1, 0, "default", "work", '{"type": "E"}')
    assert await stage.held_by(batch.id) == []


async def test_quarantined_job_is_not_claimed(stage: Stage) -> None:
    await start_quarantined(stage, 2)
    worker = await stage.worker()

    assert (await stage.claim(worker)).jobs == []
    assert await suspects(stage, worker) == []


async def test_release_quarantined_job_is_queued_with_reset_counters(stage: Stage) -> None:
    [job, other] = await start_quarantined(stage, 2)
    listener = await stage.connect()
    await stage.sql('listen "rota.wake"', on=listener)

    assert await stage.run(jobs.release_quarantined(job)) == [1]

    [heard] = [note async for note in listener.notifies(timeout=60, stop_after=1)]
    assert heard.payload == "default"
    assert await queued_rows(stage, "attempt", *HISTORY) == {job: (1, 0, None)}
    assert (await stage.claim(await stage.worker())).jobs == [job]
    assert await stage.place(other) == "quarantined"


async def test_release_quarantined_by_sql_function_queues_the_job(stage: Stage) -> None:
    [job] = await start_quarantined(stage)

    assert await stage.sql("select rota.release(%s)", job) == [1]
    assert await stage.sql("select rota.release(%s)", job) == [0]
    assert await stage.sql("select rota.release(12345)") == [0]
    assert await stage.place(job) == "queued"


async def test_release_quarantined_run_or_job_resumes_the_flow(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": [], "c": [], "d": ["a", "b", "c"]})
    worker = await stage.worker()
    both = await flows.claim(stage, worker)
    await quarantine(stage, both)
    assert (await flows.outcomes(stage, laid))["run"] == "running"

    assert await stage.run(jobs.release_quarantined(laid["b"])) == [1]
    assert await stage.run(jobs.release_quarantined(laid.run)) == [2]

    await flows.end(stage, await flows.claim(stage, worker))
    await flows.end(stage, await flows.claim(stage, worker))
    assert set((await flows.outcomes(stage, laid)).values()) == {"succeeded"}


async def test_cancel_quarantined_run_cancels_all_jobs(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": ["a"]})
    await quarantine(stage, await flows.claim(stage, await stage.worker()))

    assert await flows.cancel(stage, laid.run) == "cancelled"

    assert set((await flows.outcomes(stage, laid)).values()) == {"cancelled"}
    assert await stage.sql("select * from rota.quarantine") == []
    assert await stage.sql("select * from rota.cancels") == []


async def test_quarantine_with_cancel_request_cancels_the_job(stage: Stage) -> None:
    laid = await flows.start(stage, {"a": [], "b": [], "c": ["a"]})
    batch = await flows.claim(stage, await stage.worker())
    assert await flows.cancel(stage, laid["a"]) == "requested"

    moved = await quarantine(stage, batch)

    assert sorted(moved.jobs) == sorted(batch.jobs)
    assert await flows.outcomes(stage, laid) == {
        **{"a": "cancelled", "b": "quarantined", "c": "skipped", "run": "running"}
    }
    assert await stage.sql("select * from rota.cancels") == []


async def test_quarantine_of_reaped_jobs_is_refused(stage: Stage) -> None:
    batch = await stage.held(2)
    await lose_worker(stage, batch)

    assert await quarantine(stage, batch) == NOTHING
    assert await stage.sql("select * from rota.quarantine") == []


# Two sessions that meet


async def test_release_quarantined_twice_concurrently_queues_once(stage: Stage) -> None:
    [job] = await start_quarantined(stage)
    first, second = await stage.connect(), await stage.connect()

    async with first.transaction():
        assert await stage.run(jobs.release_quarantined(job), first) == [1]
        releasing = stage.meanwhile(stage.run(jobs.release_quarantined(job), second))
        await stage.waits(second, first)

    assert await releasing == [0]
    assert await stage.sql("select job from rota.queued") == [job]


async def test_cancel_during_quarantine_release_cancels_the_job(stage: Stage) -> None:
    [job] = await start_quarantined(stage)
    releasing, canceller = await stage.connect(), await stage.connect()

    async with releasing.transaction():
        await stage.run(jobs.release_quarantined(job), releasing)
        cancelling = stage.meanwhile(stage.run(runs.cancel(job), canceller))
        await stage.waits(canceller, releasing)

    assert await cancelling == ["cancelled"]
    assert await stage.place(job) == "cancelled"


async def test_release_quarantined_during_cancel_releases_nothing(stage: Stage) -> None:
    [job] = await start_quarantined(stage)
    cancelling, releaser = await stage.connect(), await stage.connect()

    async with cancelling.transaction():
        assert await stage.run(runs.cancel(job), cancelling) == ["cancelled"]
        releasing = stage.meanwhile(stage.run(jobs.release_quarantined(job), releaser))
        await stage.waits(releaser, cancelling)

    assert await releasing == [0]
    assert await stage.place(job) == "cancelled"


async def test_cancel_during_quarantine_cancels_the_job(stage: Stage) -> None:
    batch = await stage.held(1)
    putting, canceller = await stage.connect(engine=True), await stage.connect()

    async with putting.transaction():
        await quarantine(stage, batch, on=putting)
        cancelling = stage.meanwhile(stage.run(runs.cancel(batch.jobs[0]), canceller))
        await stage.waits(canceller, putting)

    assert await cancelling == ["cancelled"]
    assert await stage.place(batch.jobs[0]) == "cancelled"


@pytest.mark.parametrize("second", ["release", "cancel"])
async def test_release_quarantined_run_concurrently_does_not_deadlock(
    own_stage: Stage, second: str
) -> None:
    """One session scans the table, the other an index; a locked row in the middle makes both wait there."""
    stage = own_stage
    laid = await flows.start(stage, {f"n{number}": [] for number in range(6)})
    batch = await flows.claim(stage, await stage.worker())
    await quarantine(stage, batch)
    # Store the rows in another order than that of their ids, as after some time.
    await stage.sql(
        "with gone as (delete from rota.quarantine returning *)"
        " insert into rota.quarantine select * from gone order by job desc"
    )
    middle = sorted(batch.jobs)[3]
    holder, by_row, by_index = [await stage.connect() for _ in range(3)]
    await stage.sql("set enable_indexscan = off", on=by_row)
    await stage.sql("set enable_bitmapscan = off", on=by_row)
    await stage.sql("set enable_seqscan = off", on=by_index)
    await stage.sql("set enable_bitmapscan = off", on=by_index)
    how = jobs.release_quarantined(laid.run) if second == "release" else runs.cancel(laid.run)

    async with holder.transaction():
        await stage.sql("select from rota.quarantine where job = %s for update", middle, on=holder)
        one = stage.meanwhile(stage.run(jobs.release_quarantined(laid.run), by_row))
        await stage.waits(by_row, holder)
        two = stage.meanwhile(stage.run(how, by_index))
        while not await stage.one(
            "select cardinality(pg_blocking_pids(%s))", by_index.info.backend_pid
        ):
            await asyncio.sleep(0.002)

    await asyncio.gather(one, two)
    assert await stage.sql("select * from rota.quarantine") == []


async def _work(
    stage: Stage, chance: random.Random, laid: list[flows.StartedRun], on: Connection
) -> None:
    worker = await stage.worker()
    tasks = [f"f.{name}" for name in "abcde"]
    batches = await suspects(stage, worker, 3, tasks=tasks, on=on)
    batches += [await stage.claim(worker, chance.randint(1, 5), tasks=tasks, on=on)]
    for batch in batches:
        if batch.jobs:
            own = await split(stage, batch, batch.jobs[0], on=on)
            async with on.transaction():
                match chance.choice(["inside", "complete", "quarantine", "die", "die", "back"]):
                    case "inside":
                        # The job's own transaction, which ends it.
                        await stage.run(claims.lock_shared(worker, own.id, own.jobs[0]), on)
                        await asyncio.sleep(chance.choice([0, 0.003]))
                        await stage.complete(own, on=on)
                    case "complete":
                        await stage.complete(batch, on=on)
                    case "quarantine":
                        await quarantine(stage, batch, on=on)
                    case "die":
                        await declare_dead(stage, worker, on=on)
                    case "back":
                        await stage.give_back(batch, on=on)
                await asyncio.sleep(chance.choice([0, 0, 0.003]))
    if len(laid) < 200:
        laid.append(await flows.start(stage, {"a": [], "b": ["a"], "c": [], "d": ["c"]}, on=on))


async def _reap(
    stage: Stage, chance: random.Random, laid: list[flows.StartedRun], on: Connection
) -> None:
    for claim in (await orphans(stage))[:5]:
        await reap(stage, claim, on=on)


async def _cancel(
    stage: Stage, chance: random.Random, laid: list[flows.StartedRun], on: Connection
) -> None:
    run = chance.choice(laid)
    async with on.transaction():
        await stage.run(runs.cancel(chance.choice([run.run, *run.jobs.values()])), on)
        await asyncio.sleep(chance.choice([0, 0.002]))


async def _release(
    stage: Stage, chance: random.Random, laid: list[flows.StartedRun], on: Connection
) -> None:
    async with on.transaction():
        await stage.run(jobs.release_quarantined(chance.choice(laid).run), on)
        await asyncio.sleep(chance.choice([0, 0.002]))
