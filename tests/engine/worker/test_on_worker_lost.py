"""`on_worker_lost`: the worker that claims a lost job decides about it before it runs again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Context, LostJob, Retry, Rota, Run, RunCancelled, RunFailed, WorkerLost
from rota.engine.worker import exclusive_run
from rota.model.events import JobClaimed, JobQuarantined
from rota.testing import EventRecorder, Harness
from support.queries import ONCE, fetch, poll_for_jobs, until

History = tuple[int, str]
"""Crashes and suspicion of a job."""
MILD, GRAVE = (0, "mild"), (0, "grave")


def lost_after_crashes(crashes: int) -> History:
    return crashes, "mild" if crashes == 1 else "grave"


async def mark_queued_as_lost(dsn: str, history: History, attempt: int = 1) -> None:
    """Mark every queued job as lost with its worker."""
    crashes, suspicion = history
    await fetch(
        dsn,
        f"update rota.queued set crashes = {crashes}, suspicion = '{suspicion}',"
        f" attempt = {attempt} returning job",
    )


async def queue_as_grave(dsn: str, run: Run[None]) -> None:
    """Queue a sleeping job as a grave suspect."""
    await fetch(
        dsn,
        f"with woken as (delete from rota.sleeping where job = {run.id} returning *)"
        " insert into rota.queued (seq, job, priority, queue, task, suspicion)"
        " select job, job, priority, queue, task, 'grave' from woken"
        " returning pg_notify('rota.wake', queue)",
    )


async def test_lost_job_with_default_policy_runs_again(rota_app: Rota, rota_dsn: str) -> None:
    @rota_app.task
    async def work(n: int) -> int:
        return n

    runs = await rota_app.start_many([work.bind(n=n) for n in range(20)])
    await mark_queued_as_lost(rota_dsn, MILD)
    async with rota_app.worker(concurrency=7):
        assert [await run.result(timeout=60) for run in runs] == list(range(20))


@pytest.mark.parametrize(
    ("policy", "history", "attempt", "expected"),
    [
        pytest.param({"on_worker_lost": "fail"}, MILD, 1, RunFailed, id="fail"),
        pytest.param({"on_worker_lost": "cancel"}, MILD, 1, RunCancelled, id="cancel"),
        pytest.param({"retry": ONCE}, MILD, 1, RunFailed, id="one attempt, and it may have begun"),
        pytest.param({"retry": Retry(non_retryable=(WorkerLost,))}, MILD, 1, RunFailed, id="never"),
        pytest.param(
            {"retry": Retry(max_attempts=2)},
            lost_after_crashes(1),
            3,
            RunFailed,
            id="attempts used up",
        ),
        pytest.param({"on_worker_lost": lambda loss: "fail"}, MILD, 1, RunFailed, id="a function"),
        pytest.param(
            {"on_worker_lost": lambda loss: "forget"}, MILD, 1, RunFailed, id="a wrong answer"
        ),
        pytest.param({"on_worker_lost": lambda loss: 1 / 0}, MILD, 1, RunFailed, id="no answer"),
        pytest.param(
            {"retry": Retry(max_attempts=2)}, lost_after_crashes(1), 2, None, id="an attempt left"
        ),
        pytest.param(
            {"on_worker_lost": lambda loss: "retry"}, MILD, 1, None, id="a function revives"
        ),
        pytest.param({"max_crashes": 4}, lost_after_crashes(3), 2, None, id="within its budget"),
    ],
)
async def test_lost_job_follows_policy_of_its_task(
    rota_app: Rota,
    rota_dsn: str,
    policy: dict[str, Any],
    history: History,
    attempt: int,
    expected: type[Exception] | None,
) -> None:
    ran = []
    policy = {"retry": Retry(max_attempts=3, delay=0), **policy}

    @rota_app.task(**policy)
    async def work() -> str:
        ran.append(1)
        return "done"

    run = await work.start()
    await mark_queued_as_lost(rota_dsn, history, attempt)
    async with rota_app.worker():
        if expected is None:
            assert await run.result(timeout=60) == "done"
        else:
            with pytest.raises(expected):
                await run.result(timeout=60)
    assert bool(ran) == (expected is None)


async def test_on_worker_lost_function_receives_lost_job(rota_app: Rota, rota_dsn: str) -> None:
    told: list[LostJob] = []

    async def decide(loss: LostJob) -> Any:
        told.append(loss)
        return "retry"

    @rota_app.task(on_worker_lost=decide)
    async def work() -> None: ...

    run = await work.start()
    await mark_queued_as_lost(rota_dsn, lost_after_crashes(1), 2)
    async with rota_app.worker():
        await run.result(timeout=60)
    assert told == [LostJob(run.id, run.id, "work", 1, 1)]


async def test_lost_job_failed_by_policy_has_worker_lost_error(
    rota_app: Rota, rota_dsn: str
) -> None:
    """The lost attempt is the last: it becomes the outcome, and is not counted twice."""

    @rota_app.task(on_worker_lost="fail")
    async def work() -> None: ...

    run = await work.start()
    await mark_queued_as_lost(rota_dsn, lost_after_crashes(1), 2)
    await fetch(
        rota_dsn,
        "insert into rota.attempts (job, worker, state, attempt, error) values"
        f" ({run.id}, 77, 'failed', 1, '{{\"type\": \"rota.errors.WorkerLost\"}}') returning job",
    )
    async with rota_app.worker():
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=60)
    assert failed.value.kind == "rota.errors.WorkerLost"
    assert await fetch(rota_dsn, "select worker, attempt from rota.outcomes") == [(77, 1)]
    assert await fetch(rota_dsn, "select * from rota.attempts") == []


async def test_lost_job_beyond_max_crashes_is_quarantined_until_released(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app

    @app.task(max_crashes=2)
    async def work() -> str:
        return "released"

    run = await work.start()
    await mark_queued_as_lost(rota_dsn, lost_after_crashes(2), 2)
    async with app.worker():
        await rota_harness.wait_for_event(JobQuarantined, job=run.id)
        assert await run.status() == "quarantined"
        assert await fetch(rota_dsn, "select count(*) from rota.claims") == [(0,)]
        assert await run.release() == 1
        assert await run.result(timeout=60) == "released"


async def test_quarantined_job_can_be_cancelled(rota_harness: Harness, rota_dsn: str) -> None:
    app = rota_harness.app

    @app.task(max_crashes=1)
    async def work() -> None: ...

    run = await work.start()
    await mark_queued_as_lost(rota_dsn, lost_after_crashes(1), 2)
    async with app.worker():
        await rota_harness.wait_for_event(JobQuarantined, job=run.id)
        assert await run.cancel() == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)


async def test_grave_suspect_runs_alone_under_exclusive_claim(
    rota_app: Rota, rota_dsn: str
) -> None:
    """The suspect waits for running jobs to end, and no other job begins until it has ended."""
    first, go = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    @rota_app.task
    async def before() -> None:
        first.set()
        await go.wait()
        seen.append("before")

    @rota_app.task
    async def grave(ctx: Context) -> None:
        seen.append("grave")
        held = (
            f"select exclusive, cardinality(jobs) from rota.claims where {ctx.job_id} = any(jobs)"
        )
        assert await fetch(rota_dsn, held) == [(True, 1)]
        await poll_for_jobs(worker)
        seen.append("grave ends")

    @rota_app.task
    async def after() -> None:
        seen.append("after")

    witness = EventRecorder(rota_app)
    long = await before.start()
    async with rota_app.worker() as worker:
        await first.wait()
        suspect = await grave.options(delay=3600).start()
        await queue_as_grave(rota_dsn, suspect)
        await witness.wait_for_event(JobClaimed, job=suspect.id)
        late = await after.start()
        await poll_for_jobs(worker)
        assert seen == []
        go.set()
        for run in (long, suspect, late):
            await run.result(timeout=60)
    assert seen == ["before", "grave", "grave ends", "after"]


async def test_grave_suspect_with_claim_lost_before_start_does_not_run(
    rota_app: Rota, rota_dsn: str
) -> None:
    first, go = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @rota_app.task
    async def before() -> None:
        first.set()
        await go.wait()

    @rota_app.task
    async def grave() -> None:
        ran.append("grave")

    @rota_app.task
    async def after() -> None: ...

    witness = EventRecorder(rota_app)
    await before.start()
    async with rota_app.worker():
        await first.wait()
        suspect = await grave.options(delay=3600).start()
        await queue_as_grave(rota_dsn, suspect)
        await witness.wait_for_event(JobClaimed, job=suspect.id)
        await fetch(
            rota_dsn, f"delete from rota.claims where {suspect.id} = any(jobs) returning id"
        )
        go.set()
        # No other job begins before the worker has decided whether the suspect runs.
        await (await after.start()).result(timeout=60)
    assert ran == []


async def test_grave_suspect_running_long_is_no_longer_exclusive(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive_run, "HARMLESS_AFTER_SECONDS", 0.2)
    go = asyncio.Event()

    @rota_app.task
    async def grave() -> None:
        await go.wait()

    @rota_app.task
    async def other() -> None: ...

    suspect = await grave.start()
    await mark_queued_as_lost(rota_dsn, GRAVE)
    async with rota_app.worker():

        async def is_no_longer_alone() -> bool:
            return bool(await fetch(rota_dsn, "select exclusive from rota.claims") == [(False,)])

        await until(is_no_longer_alone)
        await (await other.start()).result(timeout=60)
        go.set()
        await suspect.result(timeout=60)


async def test_grave_suspect_waiting_for_child_runs_lets_them_run(
    rota_app: Rota, rota_dsn: str
) -> None:
    """Otherwise the suspect and its child runs would wait for each other for 30 seconds."""

    @rota_app.task
    async def part(n: int) -> int:
        return n

    @rota_app.task
    async def whole(ctx: Context) -> int:
        return sum(await ctx.map([part.bind(n=n) for n in range(4)]))

    run = await whole.start()
    await mark_queued_as_lost(rota_dsn, GRAVE)
    async with rota_app.worker():
        assert await run.result(timeout=60) == 6


async def test_suspect_after_ordinary_failure_is_no_longer_suspect(
    rota_app: Rota, rota_dsn: str
) -> None:
    @rota_app.task(retry=Retry(max_attempts=5, delay=3600))
    async def fails() -> None:
        raise ValueError

    await fails.start()
    await mark_queued_as_lost(rota_dsn, lost_after_crashes(1), 2)
    async with rota_app.worker():

        async def sleeps() -> bool:
            return bool(
                await fetch(rota_dsn, "select attempt, crashes from rota.sleeping") == [(3, 1)]
            )

        await until(sleeps)


async def test_visibility_timeout_expired_returns_job_to_queue(
    rota_dsn: str,
) -> None:
    ran = []
    async with Rota(rota_dsn, heartbeat_interval=0.1, dead_after=60, poll_interval=0.1) as app:

        @app.task(visibility_timeout=0.6, retry=Retry(max_attempts=3, delay=0))
        async def stuck() -> str:
            ran.append(1)
            if len(ran) == 1:
                await asyncio.sleep(3600)
            return "second"

        @app.task
        async def short(n: int) -> int:
            return n

        # In one claim with jobs that have no visibility timeout.
        runs = await app.start_many([short.bind(n=n) for n in range(5)])
        run = await stuck.start()
        async with app.worker():
            for each in runs:
                await each.result(timeout=60)
            assert await run.result(timeout=60) == "second"
    assert await fetch(
        rota_dsn, "select attempt, error ->> 'type' from rota.attempts where error is not null"
    ) == [(1, "rota.errors.WorkerLost")]


@pytest.mark.parametrize("crashes", [1, 2, 5])
async def test_lost_wait_node_of_flow_always_runs_again(
    rota_app: Rota, rota_dsn: str, crashes: int
) -> None:
    """A wait node runs no user code, so it cannot have ended the workers."""
    flow = rota_app.flow("order")
    flow.wait_signal("approval", type=bool)
    flow.sleep("cool", 0, after=["approval"])

    run = await flow.start()
    await mark_queued_as_lost(rota_dsn, lost_after_crashes(crashes), crashes + 1)
    async with rota_app.worker():
        assert await run.signal("approval", True)
        assert await run.result(timeout=60) == {"cool": None}
    assert await fetch(rota_dsn, "select * from rota.quarantine") == []
