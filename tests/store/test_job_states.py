"""States of jobs: the public view, and the queries of the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.operations.run_search import find_runs, load_rows
from rota.store import runs, timers
from rota.store.read import runs as read_runs
from rota.store.read.run_list import MAX_ID, RunFilter
from support.stage import Stage

COLUMNS = ["job", "run", "task", "queue", "state", "attempt", "worker", "since"]


async def state(stage: Stage, job: int) -> dict[str, Any]:
    row = await stage.one("select * from rota.job_state where job = %s", job)
    return dict(zip(COLUMNS, row, strict=True))


async def test_job_state_view_has_documented_columns(stage: Stage) -> None:
    assert (
        await stage.sql(
            "select attname from pg_attribute where attrelid = 'rota.job_state'::regclass"
            " and attnum > 0 order by attnum"
        )
        == COLUMNS
    )


async def test_job_state_follows_the_job_through_every_place(stage: Stage) -> None:
    job = await stage.start("work", queue="default", delay=timedelta(seconds=0.01))
    found = await state(stage, job)
    assert (found["run"], found["task"], found["queue"]) == (job, "work", "default")
    assert (found["state"], found["attempt"], found["worker"]) == ("sleeping", 1, None)

    await stage.sql("update rota.sleeping set wake_at = rota.clock() - interval '1 s'")
    await stage.run(timers.wake(1))
    assert (await state(stage, job))["state"] == "queued"

    batch = await stage.claim(await stage.worker())
    found = await state(stage, job)
    assert (found["state"], found["attempt"], found["worker"]) == ("running", 1, batch.worker)
    assert found["since"] == await stage.one("select at from rota.claims")

    await stage.retry(batch, delay=0)
    found = await state(stage, job)
    assert (found["state"], found["attempt"], found["worker"]) == ("sleeping", 2, None)

    await stage.run(timers.wake(1))
    found = await state(stage, job)
    assert (found["state"], found["attempt"]) == ("queued", 2)
    assert found["since"] == await stage.one("select at from rota.attempts")

    batch = await stage.claim(await stage.worker())
    await stage.complete(batch)
    found = await state(stage, job)
    assert (found["state"], found["attempt"], found["worker"]) == ("succeeded", 2, batch.worker)
    assert found["since"] == await stage.one("select at from rota.outcomes")


@pytest.mark.parametrize("end", ["failed", "cancelled", "expired"])
async def test_job_state_of_ended_job_is_its_outcome(stage: Stage, end: str) -> None:
    batch = await stage.held(1)

    await stage.finish(batch, end)

    assert (await state(stage, batch.jobs[0]))["state"] == end


async def test_job_state_of_returned_job_is_queued_in_same_attempt(stage: Stage) -> None:
    batch = await stage.held(1)

    await stage.give_back(batch)

    found = await state(stage, batch.jobs[0])
    assert (found["state"], found["attempt"], found["worker"]) == ("queued", 1, None)


async def test_job_state_of_retried_job_is_queued_in_next_attempt(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.finish(batch, "failed")

    await stage.run(runs.retry(batch.jobs[0]))

    found = await state(stage, batch.jobs[0])
    assert (found["state"], found["attempt"]) == ("queued", 2)


async def test_state_counts_count_jobs_by_state(stage: Stage) -> None:
    await stage.held(3)
    await stage.start_several(2)
    await stage.start(delay=timedelta(hours=1))

    assert await stage.run(read_runs.state_counts()) == [
        read_runs.StateCounts(2, sleeping=1, quarantined=0, running=3)
    ]


async def test_run_query_returns_details_and_attempts(stage: Stage) -> None:
    batch = await stage.held(1)
    [run] = batch.jobs
    await stage.retry(batch)

    [detail] = await stage.run(read_runs.run(run))
    [attempt] = await stage.run(read_runs.attempts(run))

    assert (detail.state, detail.attempt, detail.args, detail.result) == (
        "sleeping",
        2,
        b"{}",
        None,
    )
    assert detail.wakes is not None
    assert (attempt.attempt, attempt.state, attempt.seconds) == (1, "failed", 0.5)
    assert await stage.run(read_runs.run(999)) == []


async def test_find_runs_lists_newest_first_and_filters(stage: Stage) -> None:
    one = await stage.start("work")
    two = await stage.start("other", queue="images")
    three = await stage.start("work", delay=timedelta(hours=1))

    async def listed(before: int = MAX_ID, limit: int = 20, **asked: Any) -> list[int]:
        found = await find_runs(stage.together, RunFilter(**asked), limit, before=before)
        return [line.run for line in await load_rows(stage.together, RunFilter(), found.positions)]

    assert await listed() == [three, two, one]
    assert await listed(name="work") == [three, one]
    assert await listed(queue="images") == [two]
    assert await listed(states=("queued",)) == [two, one]
    assert await listed(before=three, limit=1) == [two]


async def test_queues_list_has_queued_jobs_and_eligible_workers(stage: Stage) -> None:
    await stage.start_several(2)
    await stage.start("unknown")
    await stage.worker()

    lines = await stage.run(read_runs.queues())

    assert [(line.queue, line.task, line.queued, line.workers) for line in lines] == [
        ("default", "unknown", 1, 0),
        ("default", "work", 2, 1),
    ]
    assert all(line.oldest is not None and 0 <= line.oldest < 60 for line in lines)
