"""Retry and fork of runs."""

from __future__ import annotations

import pytest
from psycopg.errors import DatabaseError

from rota.store import runs
from support import flows
from support.flows import DIAMOND, claim_only, end, outcomes, retry, run_one, start
from support.stage import Stage

# Retry


async def test_retry_run_reruns_failed_jobs_and_their_successors(
    stage: Stage,
) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    await run_one(stage, worker, "a")
    await run_one(stage, worker, "b", "failed")
    await run_one(stage, worker, "c")

    assert await retry(stage, run.run) == ["default"]

    assert await outcomes(stage, run) == {
        "a": "succeeded",
        "b": "queued",
        "c": "succeeded",
        "d": "waiting",
        "run": "running",
    }
    assert (await flows.waiting(stage))[run["d"]] == (1, 0, 0, 0)
    await run_one(stage, worker, "b")
    await run_one(stage, worker, "d")
    assert (await outcomes(stage, run))["run"] == "succeeded"
    assert await stage.sql("select job, state::text, attempt from rota.attempts order by job") == [
        (run.run, "failed", 1),
        (run["b"], "failed", 1),
    ]
    assert await stage.one("select attempt from rota.outcomes where job = %s", run["b"]) == 2


async def test_retry_run_resets_successors_that_ran_after_the_failure(stage: Stage) -> None:
    run = await start(
        stage,
        {"a": [], "spite": ["a"], "because": ["a"], "after": ["spite"]},
        {"spite": "all_done", "because": "any_failed"},
    )
    worker = await stage.worker()
    await run_one(stage, worker, "a", "failed")
    for name in ("spite", "because", "after"):
        await run_one(stage, worker, name)

    await retry(stage, run.run)
    assert await outcomes(stage, run) == {
        "a": "queued",
        **dict.fromkeys(["spite", "because", "after"], "waiting"),
        "run": "running",
    }
    await run_one(stage, worker, "a")
    await run_one(stage, worker, "spite")
    await run_one(stage, worker, "after")

    assert await outcomes(stage, run) == {
        **dict.fromkeys(["a", "spite", "after", "run"], "succeeded"),
        "because": "skipped",
    }


async def test_retry_run_keeps_intentional_skips(stage: Stage) -> None:
    run = await start(
        stage, {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"]}, {"c": "none_failed"}
    )
    worker = await stage.worker()
    await run_one(stage, worker, "a", "skipped")
    await run_one(stage, worker, "b", "failed")

    await retry(stage, run.run)
    assert (await flows.waiting(stage))[run["c"]] == (1, 0, 0, 1)
    await run_one(stage, worker, "b")
    await run_one(stage, worker, "c")

    assert await outcomes(stage, run) == {
        "a": "skipped",
        "b": "succeeded",
        "c": "succeeded",
        "d": "skipped",
        "run": "succeeded",
    }


async def test_retry_cancelled_run_clears_the_cancel_request(stage: Stage) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    await stage.run(runs.cancel(run.run), stage.watch)
    await end(stage, batch, "cancelled")

    await retry(stage, run.run)
    await run_one(stage, worker, "a", "failed")

    assert (await outcomes(stage, run))["run"] == "failed"
    assert await stage.sql("select job from rota.cancels") == []


async def test_retry_ignores_late_cancel_request_of_earlier_attempt(
    stage: Stage,
) -> None:
    """The job succeeded in spite of a cancel request, and the request is not deleted yet."""
    run = await start(stage, {"a": [], "b": ["a"]}, {"b": "all_done"})
    worker = await stage.worker()
    await run_one(stage, worker, "a", "failed")
    batch = await claim_only(stage, worker, "b")
    assert await stage.run(runs.cancel(run["b"]), stage.watch) == ["requested"]
    await end(stage, batch)

    await retry(stage, run.run)
    await run_one(stage, worker, "a")

    assert await outcomes(stage, run) == {"a": "succeeded", "b": "queued", "run": "running"}


async def test_retry_run_with_running_job_is_refused(stage: Stage) -> None:
    """No job starts before its predecessors have ended."""
    run, worker = await start(stage, {"a": [], "b": ["a"]}), await stage.worker()
    batch = await claim_only(stage, worker, "a")
    await stage.run(runs.cancel(run.run), stage.watch)

    assert await retry(stage, run.run) is None
    assert (await flows.claim(stage, worker)).jobs == []

    await end(stage, batch)
    assert await retry(stage, run.run) == ["default"]
    assert await outcomes(stage, run) == {"a": "succeeded", "b": "queued", "run": "running"}


async def test_retry_open_succeeded_or_unknown_run_changes_nothing(stage: Stage) -> None:
    run, worker = await start(stage, {"a": []}), await stage.worker()

    assert await retry(stage, run.run) is None
    await run_one(stage, worker, "a")
    before = await stage.everything()
    assert await retry(stage, run.run) is None
    assert await retry(stage, 12345) is None
    assert await stage.everything() == before


async def test_retry_single_job_of_a_flow_raises(stage: Stage) -> None:
    run, worker = await start(stage, {"a": []}), await stage.worker()
    await run_one(stage, worker, "a", "failed")

    with pytest.raises(DatabaseError, match=f"is a part of run {run.run}"):
        await retry(stage, run["a"])


async def test_retry_child_flow_with_open_siblings_raises(
    stage: Stage,
) -> None:
    """Otherwise the run of the calls would count this flow twice."""
    await stage.start()
    worker = await stage.worker()
    held = await stage.claim(worker)
    parts = [flows.run_of({"x": []}, part_of=1) for _ in range(2)]
    whole, one, _ = await flows.start_child_runs(stage, held, 0, parts)
    await end(stage, await flows.claim(stage, worker, 1, names=["x"]), "failed")

    with pytest.raises(DatabaseError, match="still open"):
        await retry(stage, one.run)

    assert (await flows.waiting(stage))[whole.run] == (1, 1, 0, 0)


async def test_retry_child_runs_reruns_only_failed_ones(stage: Stage) -> None:
    await stage.start()
    worker = await stage.worker()
    held = await stage.claim(worker)
    whole, part = await flows.start_child_runs(
        stage, held, 3, [flows.run_of({"x": [], "y": ["x"]}, part_of=1)]
    )
    await run_one(stage, worker, "call0")
    await run_one(stage, worker, "call1", "failed")
    await run_one(stage, worker, "call2")
    await run_one(stage, worker, "x")
    await run_one(stage, worker, "y", "failed")
    assert await stage.one("select state from rota.run_state where run = %s", whole.run) == "failed"

    assert await retry(stage, whole.run) == ["default", "default"]

    again = await flows.claim(stage, worker)
    assert sorted(job.task for job in again.members) == ["f.call1", "f.y"]
    await end(stage, again)
    assert await stage.sql(
        "select state from rota.run_state where run = any(%s)", [whole.run, part.run]
    ) == ["succeeded", "succeeded"]


async def test_retry_run_twice_concurrently_retries_once(stage: Stage) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    await run_one(stage, worker, "a", "failed")
    other = await stage.connect()

    async with stage.engine.transaction():
        assert await retry(stage, run.run) == ["default"]
        second = stage.meanwhile(retry(stage, run.run, other))
        await stage.waits(other, stage.engine)

    assert await second is None
    assert await stage.one("select count(*) from rota.attempts") == 2


# Fork


async def test_fork_reruns_task_and_successors_and_copies_the_rest(stage: Stage) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    for name in DIAMOND:
        await run_one(stage, worker, name)
    before = await outcomes(stage, run)

    [(forked, queues)] = await stage.run(runs.fork(run.run, "f.b"))

    assert forked is not None
    copy = await flows.load_run(stage, forked, DIAMOND)
    assert queues == ["default"]
    assert await outcomes(stage, copy) == {
        "a": "succeeded",
        "b": "queued",
        "c": "succeeded",
        "d": "waiting",
        "run": "running",
    }
    await run_one(stage, worker, "b")
    await run_one(stage, worker, "d")
    assert (await outcomes(stage, copy))["run"] == "succeeded"
    assert await outcomes(stage, run) == before
    assert await stage.one("select forked_from from rota.runs where id = %s", forked) == run.run


async def test_fork_open_run_reruns_unfinished_jobs(stage: Stage) -> None:
    run, worker = await start(stage, DIAMOND), await stage.worker()
    await run_one(stage, worker, "a")
    held = await claim_only(stage, worker, "b")

    [(forked, _)] = await stage.run(runs.fork(run.run, "f.c"))
    assert forked is not None
    copy = await flows.load_run(stage, forked, DIAMOND)

    assert await outcomes(stage, copy) == {
        "a": "succeeded",
        "b": "queued",
        "c": "queued",
        "d": "waiting",
        "run": "running",
    }
    await end(stage, held, "failed")
    assert (await outcomes(stage, copy))["b"] == "queued"


async def test_fork_unknown_run_or_task_changes_nothing(stage: Stage) -> None:
    run = await start(stage, DIAMOND)
    before = await stage.everything()

    for which, task in ((run.run, "f.z"), (12345, "f.a"), (run["a"], "f.a")):
        [(forked, _)] = await stage.run(runs.fork(which, task))
        assert forked is None
    assert await stage.everything() == before
