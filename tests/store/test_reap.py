"""Taking back the jobs of a lost worker: which are queued again, with which marks, and which stay."""

from __future__ import annotations

import json

import psycopg
import pytest

from rota.store import claims, runs, workers

from . import flows
from .losses import NOTHING, bury, die, orphans, ready, reap, run_out, split
from .stage import Stage


async def test_what_a_dead_worker_held_goes_back_under_its_old_number(stage: Stage) -> None:
    batch = await stage.held(3, priority=4)
    later = await stage.start_several(2, priority=4)

    moved = await die(stage, batch)

    assert (moved.jobs, moved.queues, moved.runs, moved.pending) == (
        batch.jobs,
        ["default"],
        [],
        False,
    )
    assert await ready(stage, "seq", "priority", "queue", "task") == {
        job: (job, 4, "default", "work") for job in [*batch.jobs, *later]
    }
    assert await stage.held_by(batch.id) == []


async def test_of_several_jobs_none_is_charged(stage: Stage) -> None:
    batch = await stage.held(3)

    await die(stage, batch)

    assert await ready(stage, "attempt", "lost") == dict.fromkeys(batch.jobs, (1, -1))
    assert await stage.sql("select * from rota.attempts") == []


async def test_the_only_job_a_worker_held_is_charged_with_an_attempt_and_a_crash(
    stage: Stage,
) -> None:
    batch = await stage.held(1)
    [job] = batch.jobs

    await die(stage, batch)

    assert await ready(stage, "attempt", "lost") == {job: (2, -3)}
    [(claim, worker, state, attempt, raw)] = await stage.sql(
        "select claim, worker, state, attempt, error from rota.attempts where job = %s", job
    )
    assert (claim, worker, state, attempt) == (None, batch.worker, "failed", 1)
    error = json.loads(raw)
    assert (error["type"], error["attempt"]) == ("rota.errors.WorkerLost", 1)
    assert f"worker {batch.worker} (host, process 1) was lost" in error["message"]


async def test_a_job_in_its_nth_attempt_comes_back_in_that_attempt(stage: Stage) -> None:
    await stage.start_several(2)
    await stage.sql("update rota.queued set seq = job + 1000, attempt = 7")
    batch = await stage.claim(await stage.worker())

    await die(stage, batch)

    assert await ready(stage, "seq", "attempt") == {job: (job + 1000, 7) for job in batch.jobs}


@pytest.mark.parametrize("state", ["active", "draining"])
async def test_a_worker_that_lives_keeps_what_it_holds(stage: Stage, state: str) -> None:
    batch = await stage.held(2)
    await stage.sql("update rota.workers set state = %s", state)
    before = await stage.everything()

    assert await reap(stage, batch.id) == NOTHING
    assert await reap(stage, batch.id, batch.jobs[:1]) == NOTHING
    assert await orphans(stage) == []
    assert await stage.everything() == before


async def test_a_claim_of_a_worker_nobody_remembers_goes_back(stage: Stage) -> None:
    batch = await stage.held(2)
    await stage.sql("delete from rota.workers")

    assert await orphans(stage) == [batch.id]
    assert (await reap(stage, batch.id)).jobs == batch.jobs
    assert await ready(stage, "attempt", "lost") == dict.fromkeys(batch.jobs, (1, -1))


@pytest.mark.parametrize("mark", [0, 1, -1, -2, -4])
async def test_what_a_worker_left_behind_when_it_stopped_goes_back_as_it_was(
    stage: Stage, mark: int
) -> None:
    batch = await stage.held(1)
    await stage.sql("update rota.claims set lost = array[%s]::smallint[]", mark)
    await stage.run(workers.mark_stopped(batch.worker))

    assert await orphans(stage) == [batch.id]
    await reap(stage, batch.id)

    assert await ready(stage, "attempt", "lost") == {batch.jobs[0]: (1, mark)}
    assert await stage.sql("select * from rota.attempts") == []


async def test_a_claim_that_is_not_there_is_nothing_to_do(stage: Stage) -> None:
    batch = await stage.held(1)
    await die(stage, batch)
    before = await stage.everything()

    assert await reap(stage, batch.id) == NOTHING
    assert await reap(stage, batch.id + 1) == NOTHING
    assert await stage.everything() == before


async def test_an_expiring_job_and_its_lane_come_back_as_they_were(stage: Stage) -> None:
    low, high = await stage.start(priority=1), await stage.start(priority=9)
    batch = await stage.claim(await stage.worker())

    await die(stage, batch)

    assert await ready(stage, "priority") == {low: 1, high: 9}


# Search for orphans


async def test_a_page_found_earlier_is_not_believed(stage: Stage) -> None:
    """B1: jobs may end after their claim was found. Those are not queued again."""
    batch = await stage.held(3)
    await bury(stage, batch.worker)
    [orphan] = await stage.run(claims.orphans(0, 10))
    assert await stage.complete(batch, batch.jobs[:2]) == []

    moved = await reap(stage, orphan.id)

    assert moved.jobs == batch.jobs[2:]
    assert list(await ready(stage, "seq")) == batch.jobs[2:]


async def test_a_claim_made_while_its_worker_was_declared_dead_is_found_by_the_next_look(
    stage: Stage,
) -> None:
    """The claiming statement saw an active worker; it commits after the declaration, and after a search."""
    await stage.start_several(2)
    worker = await stage.worker()
    late = await stage.connect(engine=True)

    async with late.transaction():
        batch = await stage.claim(worker, on=late)
        assert len(batch.jobs) == 2
        assert [each.worker for each in await bury(stage, worker)] == [worker]
        assert await orphans(stage) == []

    assert await orphans(stage) == [batch.id]
    assert (await reap(stage, batch.id)).jobs == batch.jobs


async def test_orphans_are_found_page_by_page_each_once(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.start_several(7)
    made = [(await stage.claim(worker, 1)).id for _ in range(7)]
    await bury(stage, worker)

    found, after = [], 0
    while page := await orphans(stage, after, 3):
        found += page
        after = page[-1]

    assert found == made


# Expired claims


async def test_a_hold_that_ran_out_is_taken_back_from_a_worker_that_lives(stage: Stage) -> None:
    batch = await stage.held(3)
    own = await split(stage, batch, batch.jobs[1], seconds=60)
    assert await orphans(stage) == []
    assert await reap(stage, own.id) == NOTHING

    await run_out(stage, own.id)

    assert await orphans(stage) == [own.id]
    assert (await reap(stage, own.id)).jobs == own.jobs
    assert await ready(stage, "attempt", "lost") == {own.jobs[0]: (2, -3)}
    error = json.loads(await stage.one("select error from rota.attempts"))
    assert error["message"] == f"its hold ran out while worker {batch.worker} had it"
    assert await stage.held_by(batch.id) == [batch.jobs[0], batch.jobs[2]]
    assert await stage.complete(own) == own.jobs  # refused


async def test_a_hold_outlives_its_worker_until_it_runs_out(stage: Stage) -> None:
    batch = await stage.held(2)
    own = await split(stage, batch, batch.jobs[0], seconds=60)

    await bury(stage, batch.worker)

    assert await orphans(stage) == [batch.id]
    assert await reap(stage, own.id) == NOTHING
    await run_out(stage, own.id)
    assert await orphans(stage) == [batch.id, own.id]
    assert (await reap(stage, own.id)).jobs == own.jobs


# Cancel requests


async def test_what_somebody_wished_to_cancel_is_cancelled_and_the_rest_goes_back(
    stage: Stage,
) -> None:
    batch = await stage.held(3)
    assert await stage.run(runs.cancel(batch.jobs[1]), stage.watch) == ["requested"]

    assert (await die(stage, batch)).jobs == batch.jobs

    assert await stage.place(batch.jobs[1]) == "cancelled"
    assert list(await ready(stage, "seq")) == [batch.jobs[0], batch.jobs[2]]
    assert await stage.sql("select * from rota.cancels") == []
    assert await stage.sql("select * from rota.attempts") == []


async def test_in_a_flow_that_is_passed_on(stage: Stage) -> None:
    laid = await flows.start(stage, flows.DIAMOND)
    worker = await stage.worker()
    await flows.run_one(stage, worker, "a")
    both = await flows.claim(stage, worker, 2)
    assert await flows.cancel(stage, laid.run) == "requested"

    moved = await die(stage, both)

    assert (sorted(moved.jobs), moved.runs) == (sorted(both.jobs), [laid.run])
    assert await flows.outcomes(stage, laid) == {
        "a": "succeeded",
        **dict.fromkeys(["b", "c", "d", "run"], "cancelled"),
    }
    assert await stage.sql("select * from rota.cancels") == []


async def test_one_parent_cancelled_by_the_reaper_releases_who_waits_for_any_end(
    stage: Stage,
) -> None:
    laid = await flows.start(stage, {"a": [], "z": ["a"]}, {"z": "all_done"})
    batch = await flows.claim(stage, await stage.worker())
    assert await flows.cancel(stage, laid["a"]) == "requested"

    moved = await die(stage, batch)

    assert (moved.queues, moved.runs) == (["default"], [])
    assert list(await ready(stage, "seq")) == [laid["z"]]


# Jobs that cannot be moved


async def refuse(stage: Stage, job: int) -> None:
    """Make every insert of this job into `queued` fail."""
    await stage.sql(
        "create function public.refuse() returns trigger language plpgsql as"
        f" $$ begin if new.job = {job} then raise 'not this one'; end if; return new; end $$"
    )
    await stage.sql(
        "create trigger refuse before insert on rota.queued"
        " for each row execute function public.refuse()"
    )


async def test_one_that_cannot_be_moved_undoes_all_and_stops_none_that_is_asked_for(
    own_stage: Stage,
) -> None:
    """B9: the whole claim fails together; job by job, all but one are queued again."""
    stage = own_stage
    batch = await stage.held(5)
    bad = batch.jobs[2]
    await refuse(stage, bad)
    await bury(stage, batch.worker)
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
    assert await ready(stage, "seq", "lost") == {job: (job, -1) for job in batch.jobs}


async def test_taking_some_keeps_the_others_numbers_together(stage: Stage) -> None:
    batch = await stage.held(4)
    a, b, c, d = batch.jobs
    await stage.sql(
        "update rota.claims set attempts = '{1,2,3,4}', lost = '{0,1,-1,-3}', seqs = '{9,8,7,6}'"
    )
    await bury(stage, batch.worker)

    moved = await reap(stage, batch.id, [c, a, 12345])

    assert sorted(moved.jobs) == [a, c]
    assert await ready(stage, "seq", "attempt") == {a: (9, 1), c: (7, 3)}
    assert await stage.sql("select jobs, attempts, lost, seqs from rota.claims") == [
        ([b, d], [2, 4], [1, -3], [8, 6])
    ]
    assert await reap(stage, batch.id, [a, c]) == NOTHING
    assert (await reap(stage, batch.id, [d, b])).jobs == [b, d]
    assert await stage.sql("select * from rota.claims") == []
