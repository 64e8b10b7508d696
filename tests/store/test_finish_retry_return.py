"""Other ways out of a claim: failure, retry, return to the queue, release."""

from __future__ import annotations

import pytest

from rota.store import jobs, runs
from support.stage import Stage

# Failure


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
async def test_finish_records_outcome_and_removes_job_from_claim(stage: Stage, state: str) -> None:
    batch = await stage.held(3)
    ended, *rest = batch.jobs

    assert await stage.finish(batch, state, [ended]) == [ended]

    assert await stage.held_by(batch.id) == rest
    assert await stage.sql(
        "select job, claim, worker, state::text, attempt, seconds, result, error ->> 'type'"
        "  from rota.outcomes"
    ) == [(ended, batch.id, batch.worker, state, 1, 0.5, None, "E")]


async def test_finish_without_error_stores_null_error(stage: Stage) -> None:
    batch = await stage.held(1)

    await stage.run(jobs.finish(batch.worker, [batch.id], batch.jobs, ["expired"], [None], [0.0]))

    assert await stage.one("select error is null from rota.outcomes") is True


async def test_finish_deletes_the_cancel_request(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.run(runs.cancel(batch.jobs[0]), stage.watch)

    await stage.finish(batch, "cancelled")

    assert await stage.sql("select job from rota.cancels") == []


async def test_finish_under_wrong_claim_of_same_worker_is_refused(stage: Stage) -> None:
    """Jobs and claims are paired: naming both claims does not accept one in place of the other."""
    await stage.start_several(2)
    worker = await stage.worker()
    one, two = await stage.claim(worker, 1), await stage.claim(worker, 1)
    crossed = jobs.finish(
        *(worker, [two.id, one.id], [*one.jobs, *two.jobs]),
        *(["failed"] * 2, [None] * 2, [0.0] * 2),
    )

    [moved] = await stage.run(crossed)
    assert moved.jobs == []


# Retry


async def test_retry_job_records_attempt_and_job_sleeps(stage: Stage) -> None:
    batch = await stage.held(2)
    failed, left = batch.jobs

    answer = await stage.retry(batch, [failed], delay=60.0)

    assert answer.jobs == [failed]
    assert await stage.held_by(batch.id) == [left]
    assert await stage.sql(
        "select job, claim, worker, state::text, attempt, seconds, error ->> 'type' from rota.attempts"
    ) == [(failed, batch.id, batch.worker, "failed", 1, 0.5, "E")]
    assert await stage.sql(
        "select job, priority, attempt, crashes, queue, task,"
        "       extract(epoch from wake_at - since)::float8 from rota.sleeping"
    ) == [(failed, 0, 2, 0, "default", "work", 60.0)]


async def test_retry_job_keeps_priority_and_crashes(stage: Stage) -> None:
    await stage.start(priority=7)
    await stage.sql("update rota.queued set attempt = 4, crashes = 2")
    batch = await stage.claim(await stage.worker())

    await stage.retry(batch)

    assert await stage.sql("select priority, attempt, crashes from rota.sleeping") == [(7, 5, 2)]


async def test_retry_job_with_cancel_request_cancels_the_job(stage: Stage) -> None:
    batch = await stage.held(2)
    unwanted, failed = batch.jobs
    assert await stage.run(runs.cancel(unwanted), stage.watch) == ["requested"]

    answer = await stage.retry(batch)

    assert sorted(answer.jobs) == batch.jobs
    assert await stage.place(unwanted) == "cancelled"
    assert await stage.place(failed) == "sleeping"
    assert await stage.sql("select job from rota.cancels") == []
    assert await stage.sql("select job from rota.attempts") == [failed]


async def test_retry_job_after_waiting_for_cancel_cancels_the_job(stage: Stage) -> None:
    """The lock is its own statement, so the next one sees the request that was written during the wait."""
    batch = await stage.held(1)
    other = await stage.connect()

    async with other.transaction():
        assert await stage.run(runs.cancel(batch.jobs[0]), other) == ["requested"]
        retrying = stage.meanwhile(stage.retry(batch))
        await stage.waits(stage.engine, other)

    assert (await retrying).jobs == batch.jobs
    assert await stage.place(batch.jobs[0]) == "cancelled"


# Return to the queue


async def test_return_to_queue_restores_the_queued_row(stage: Stage) -> None:
    await stage.start_several(3, priority=5)
    await stage.sql("update rota.queued set attempt = job + 1, crashes = job + 2, seq = job + 70")
    before = await stage.sql("select * from rota.queued order by job")
    batch = await stage.claim(await stage.worker())

    assert await stage.give_back(batch) == ["default"]

    assert await stage.sql("select * from rota.queued order by job") == before
    assert await stage.sql("select id from rota.claims") == []


async def test_return_to_queue_keeps_position_in_queue(stage: Stage) -> None:
    """Finding 8: with a new sequence number a reaped job was queued behind 199,999 other jobs."""
    batch = await stage.held(1)
    later = await stage.start_several(3)
    await stage.give_back(batch)

    again = await stage.claim(await stage.worker())

    assert again.jobs == [*batch.jobs, *later]


async def test_return_to_queue_of_some_jobs_keeps_the_rest_claimed(stage: Stage) -> None:
    batch = await stage.held(5)

    await stage.give_back(batch, batch.jobs[1:4:2])

    assert await stage.held_by(batch.id) == [batch.jobs[0], batch.jobs[2], batch.jobs[4]]
    assert await stage.sql("select job from rota.queued order by seq") == batch.jobs[1:4:2]


async def test_return_to_queue_with_cancel_request_cancels_the_job(
    stage: Stage,
) -> None:
    batch = await stage.held(2)
    unwanted, wanted = batch.jobs
    await stage.run(runs.cancel(unwanted), stage.watch)

    assert await stage.give_back(batch) == ["default"]

    assert await stage.place(unwanted) == "cancelled"
    assert await stage.place(wanted) == "queued"
    assert await stage.sql("select job from rota.cancels") == []


async def test_return_to_queue_of_cancelled_jobs_returns_no_queue(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.run(runs.cancel(batch.jobs[0]), stage.watch)

    assert await stage.give_back(batch) == []


# Removal from claims


async def test_remove_from_claims_keeps_arrays_aligned(stage: Stage) -> None:
    await stage.start_several(6)
    await stage.sql("update rota.queued set attempt = job * 2, crashes = job * 3, seq = job * 5")
    batch = await stage.claim(await stage.worker())

    # The destination does not matter here: these jobs only have to be out of the claim.
    await stage.sql(
        "insert into rota.outcomes (job, state, attempt) values (3, 'failed', 1), (6, 'failed', 1)"
    )
    await stage.sql(
        "select rota.remove_from_claims(%s, %s::bigint[], %s::bigint[])",
        *(batch.worker, [batch.id] * 2, [6, 3]),
    )

    assert await stage.sql("select jobs, attempts, crashes, seqs from rota.claims") == [
        ([1, 2, 4, 5], [2, 4, 8, 10], [3, 6, 12, 15], [5, 10, 20, 25])
    ]


# Retry by an operator


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])
async def test_retry_run_that_failed_queues_the_next_attempt(stage: Stage, state: str) -> None:
    batch = await stage.held(1)
    [run] = batch.jobs
    await stage.finish(batch, state)

    assert await stage.run(runs.retry(run)) == [["default"]]

    assert await stage.place(run) == "queued"
    assert await stage.sql("select attempt, crashes, queue, task from rota.queued") == [
        (2, 0, "default", "work")
    ]
    assert await stage.sql(
        "select job, claim, state::text, attempt, error ->> 'type' from rota.attempts"
    ) == [(run, batch.id, state, 1, "E")]


async def test_retry_run_deletes_the_cancel_request(stage: Stage) -> None:
    run = await stage.start()
    await stage.run(runs.cancel(run), stage.watch)
    await stage.sql("insert into rota.cancels (job) values (%s)", run)

    await stage.run(runs.retry(run))

    assert await stage.sql("select job from rota.cancels") == []


async def test_retry_run_that_succeeded_or_is_open_changes_nothing(stage: Stage) -> None:
    batch = await stage.held(2)
    await stage.complete(batch, batch.jobs[:1])
    ready = await stage.start()
    before = await stage.everything()

    for run in (*batch.jobs, ready, 999):
        assert await stage.run(runs.retry(run)) == [None]

    assert await stage.everything() == before


async def test_retry_run_twice_concurrently_retries_once(stage: Stage) -> None:
    batch = await stage.held(1)
    [run] = batch.jobs
    await stage.finish(batch, "failed")
    other = await stage.connect()

    async with other.transaction():
        assert await stage.run(runs.retry(run), other) == [["default"]]
        second = stage.meanwhile(stage.run(runs.retry(run)))
        await stage.waits(stage.engine, other)

    assert await second == [None]
    assert await stage.sql("select job from rota.queued") == [run]
