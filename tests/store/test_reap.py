"""Taking back the jobs of a lost worker: which are queued again, with which marks, and which stay."""

from __future__ import annotations

import json

import psycopg
import pytest

from rota.store import claims, runs, workers
from support import flows
from support.lost_workers import (
    HISTORY,
    NOTHING,
    History,
    declare_dead,
    expire_claim,
    lose_worker,
    orphans,
    queued_rows,
    reap,
    split,
)
from support.refusals import refuse
from support.stage import Stage


async def test_reap_queues_jobs_with_their_old_seq(stage: Stage) -> None:
    batch = await stage.held(3, priority=4)
    later = await stage.start_several(2, priority=4)

    moved = await lose_worker(stage, batch)

    assert (moved.jobs, moved.queues, moved.runs, moved.pending) == (
        batch.jobs,
        ["default"],
        [],
        False,
    )
    assert await queued_rows(stage, "seq", "priority", "queue", "task") == {
        job: (job, 4, "default", "work") for job in [*batch.jobs, *later]
    }
    assert await stage.held_by(batch.id) == []


async def test_reap_several_jobs_charges_none(stage: Stage) -> None:
    batch = await stage.held(3)

    await lose_worker(stage, batch)

    assert await queued_rows(stage, *HISTORY, "attempt") == dict.fromkeys(
        batch.jobs, (0, "mild", 1)
    )
    assert await stage.sql("select * from rota.attempts") == []


async def test_reap_single_job_is_charged_attempt_and_crash(
    stage: Stage,
) -> None:
    batch = await stage.held(1)
    [job] = batch.jobs

    await lose_worker(stage, batch)

    assert await queued_rows(stage, *HISTORY, "attempt") == {job: (1, "mild", 2)}
    [(claim, worker, state, attempt, raw)] = await stage.sql(
        "select claim, worker, state, attempt, error from rota.attempts where job = %s", job
    )
    assert (claim, worker, state, attempt) == (None, batch.worker, "failed", 1)
    error = json.loads(raw)
    assert (error["type"], error["attempt"]) == ("rota.errors.WorkerLost", 1)
    assert f"worker {batch.worker} (host, process 1) was lost" in error["message"]


async def test_reap_keeps_attempt_and_seq(stage: Stage) -> None:
    await stage.start_several(2)
    await stage.sql("update rota.queued set seq = job + 1000, attempt = 7")
    batch = await stage.claim(await stage.worker())

    await lose_worker(stage, batch)

    assert await queued_rows(stage, "seq", "attempt") == {
        job: (job + 1000, 7) for job in batch.jobs
    }


@pytest.mark.parametrize("state", ["active", "draining"])
async def test_reap_live_worker_keeps_its_claims(stage: Stage, state: str) -> None:
    batch = await stage.held(2)
    await stage.sql("update rota.workers set state = %s", state)
    before = await stage.everything()

    assert await reap(stage, batch.id) == NOTHING
    assert await reap(stage, batch.id, batch.jobs[:1]) == NOTHING
    assert await orphans(stage) == []
    assert await stage.everything() == before


async def test_reap_claim_of_deleted_worker_queues_its_jobs(stage: Stage) -> None:
    batch = await stage.held(2)
    await stage.sql("delete from rota.workers")

    assert await orphans(stage) == [batch.id]
    assert (await reap(stage, batch.id)).jobs == batch.jobs
    assert await queued_rows(stage, *HISTORY, "attempt") == dict.fromkeys(
        batch.jobs, (0, "mild", 1)
    )


@pytest.mark.parametrize("history", [(0, None), (1, None), (0, "mild"), (0, "grave"), (2, "grave")])
async def test_reap_claim_of_stopped_worker_keeps_crashes_and_suspicion(
    stage: Stage, history: History
) -> None:
    batch = await stage.held(1)
    await stage.sql(
        "update rota.claims set crashes = array[%s]::smallint[], suspicion = %s", *history
    )
    await stage.run(workers.mark_stopped(batch.worker))

    assert await orphans(stage) == [batch.id]
    await reap(stage, batch.id)

    assert await queued_rows(stage, *HISTORY, "attempt") == {batch.jobs[0]: (*history, 1)}
    assert await stage.sql("select * from rota.attempts") == []


async def test_reap_missing_claim_does_nothing(stage: Stage) -> None:
    batch = await stage.held(1)
    await lose_worker(stage, batch)
    before = await stage.everything()

    assert await reap(stage, batch.id) == NOTHING
    assert await reap(stage, batch.id + 1) == NOTHING
    assert await stage.everything() == before


async def test_reap_keeps_priority(stage: Stage) -> None:
    low, high = await stage.start(priority=1), await stage.start(priority=9)
    batch = await stage.claim(await stage.worker())

    await lose_worker(stage, batch)

    assert await queued_rows(stage, "priority") == {low: 1, high: 9}


# Search for orphans


async def test_reap_skips_jobs_completed_after_the_search(stage: Stage) -> None:
    """B1: jobs may end after their claim was found. Those are not queued again."""
    batch = await stage.held(3)
    await declare_dead(stage, batch.worker)
    [orphan] = await stage.run(claims.orphans(0, 10))
    assert await stage.complete(batch, batch.jobs[:2]) == []

    moved = await reap(stage, orphan.id)

    assert moved.jobs == batch.jobs[2:]
    assert list(await queued_rows(stage, "seq")) == batch.jobs[2:]


async def test_orphans_claim_committed_after_worker_death_is_found(
    stage: Stage,
) -> None:
    """The claiming statement saw an active worker; it commits after the declaration, and after a search."""
    await stage.start_several(2)
    worker = await stage.worker()
    late = await stage.connect(engine=True)

    async with late.transaction():
        batch = await stage.claim(worker, on=late)
        assert len(batch.jobs) == 2
        assert [each.worker for each in await declare_dead(stage, worker)] == [worker]
        assert await orphans(stage) == []

    assert await orphans(stage) == [batch.id]
    assert (await reap(stage, batch.id)).jobs == batch.jobs


async def test_orphans_are_paged_without_repeats(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.start_several(7)
    made = [(await stage.claim(worker, 1)).id for _ in range(7)]
    await declare_dead(stage, worker)

    found, after = [], 0
    while page := await orphans(stage, after, 3):
        found += page
        after = page[-1]

    assert found == made


# Expired claims


async def test_reap_expired_claim_of_live_worker_is_taken_back(stage: Stage) -> None:
    batch = await stage.held(3)
    own = await split(stage, batch, batch.jobs[1], seconds=60)
    assert await orphans(stage) == []
    assert await reap(stage, own.id) == NOTHING

    await expire_claim(stage, own.id)

    assert await orphans(stage) == [own.id]
    assert (await reap(stage, own.id)).jobs == own.jobs
    assert await queued_rows(stage, *HISTORY, "attempt") == {own.jobs[0]: (1, "mild", 2)}
    error = json.loads(await stage.one("select error from rota.attempts"))
    assert error["message"] == f"its hold ran out while worker {batch.worker} had it"
    assert await stage.held_by(batch.id) == [batch.jobs[0], batch.jobs[2]]
    assert await stage.complete(own) == own.jobs  # refused


async def test_reap_unexpired_claim_of_dead_worker_waits_for_expiry(stage: Stage) -> None:
    batch = await stage.held(2)
    own = await split(stage, batch, batch.jobs[0], seconds=60)

    await declare_dead(stage, batch.worker)

    assert await orphans(stage) == [batch.id]
    assert await reap(stage, own.id) == NOTHING
    await expire_claim(stage, own.id)
    assert await orphans(stage) == [batch.id, own.id]
    assert (await reap(stage, own.id)).jobs == own.jobs


# Cancel requests


async def test_reap_job_with_cancel_request_is_cancelled(
    stage: Stage,
) -> None:
    batch = await stage.held(3)
    assert await stage.run(runs.cancel(batch.jobs[1]), stage.watch) == ["requested"]

    assert (await lose_worker(stage, batch)).jobs == batch.jobs

    assert await stage.place(batch.jobs[1]) == "cancelled"
    assert list(await queued_rows(stage, "seq")) == [batch.jobs[0], batch.jobs[2]]
    assert await stage.sql("select * from rota.cancels") == []
    assert await stage.sql("select * from rota.attempts") == []


async def test_reap_flow_with_cancel_request_ends_the_run(stage: Stage) -> None:
    laid = await flows.start(stage, flows.DIAMOND)
    worker = await stage.worker()
    await flows.run_one(stage, worker, "a")
    both = await flows.claim(stage, worker, 2)
    assert await flows.cancel(stage, laid.run) == "requested"

    moved = await lose_worker(stage, both)

    assert (sorted(moved.jobs), moved.runs) == (sorted(both.jobs), [laid.run])
    assert await flows.outcomes(stage, laid) == {
        "a": "succeeded",
        **dict.fromkeys(["b", "c", "d", "run"], "cancelled"),
    }
    assert await stage.sql("select * from rota.cancels") == []


async def test_reap_cancelled_job_queues_all_done_successor(
    stage: Stage,
) -> None:
    laid = await flows.start(stage, {"a": [], "z": ["a"]}, {"z": "all_done"})
    batch = await flows.claim(stage, await stage.worker())
    assert await flows.cancel(stage, laid["a"]) == "requested"

    moved = await lose_worker(stage, batch)

    assert (moved.queues, moved.runs) == (["default"], [])
    assert list(await queued_rows(stage, "seq")) == [laid["z"]]


# Jobs that cannot be moved


async def test_reap_unmovable_job_fails_the_claim_but_not_single_jobs(
    own_stage: Stage,
) -> None:
    """B9: the whole claim fails together; job by job, all but one are queued again."""
    stage = own_stage
    batch = await stage.held(5)
    bad = batch.jobs[2]
    await refuse(stage, bad)
    await declare_dead(stage, batch.worker)
    before = await stage.everything()

    with pytest.raises(psycopg.errors.RaiseException, match="not this one"):
        await reap(stage, batch.id)
    assert await stage.everything() == before

    for job in batch.jobs:
        if job != bad:
            assert (await reap(stage, batch.id, [job])).jobs == [job]
    assert await stage.held_by(batch.id) == [bad]
    await stage.sql("drop trigger refuse on rota.queued")
    assert (await reap(stage, batch.id, [bad])).jobs == [bad]
    assert await queued_rows(stage, *HISTORY, "seq") == {
        job: (0, "mild", job) for job in batch.jobs
    }


async def test_reap_some_jobs_keeps_claim_arrays_aligned(stage: Stage) -> None:
    batch = await stage.held(4)
    a, b, c, d = batch.jobs
    await stage.sql(
        "update rota.claims set attempts = '{1,2,3,4}', crashes = '{0,1,5,3}', seqs = '{9,8,7,6}'"
    )
    await declare_dead(stage, batch.worker)

    moved = await reap(stage, batch.id, [c, a, 12345])

    assert sorted(moved.jobs) == [a, c]
    assert await queued_rows(stage, "seq", "attempt") == {a: (9, 1), c: (7, 3)}
    assert await stage.sql("select jobs, attempts, crashes, seqs from rota.claims") == [
        ([b, d], [2, 4], [1, 3], [8, 6])
    ]
    assert await reap(stage, batch.id, [a, c]) == NOTHING
    assert (await reap(stage, batch.id, [d, b])).jobs == [b, d]
    assert await stage.sql("select * from rota.claims") == []
