"""Cancellation: a queued job never runs, a running job is stopped."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota import Context, Retry, Rota, RunCancelled
from rota.engine.execution.coroutines import CoroutineExecutor
from rota.engine.execution.executor import StopReason
from rota.model.events import JobClaimed
from rota.model.outcome import FinalOutcome, Outcome, Returned
from rota.model.task import TaskDefinition, TaskPolicy
from rota.store.jobs import ClaimedJob
from rota.testing import Harness
from support.queries import fetch


async def test_cancel_queued_or_delayed_job_takes_effect_at_once(rota_app: Rota) -> None:
    @rota_app.task
    async def never() -> None:
        raise AssertionError

    for how in (never, never.options(delay=60)):
        run = await how.start()
        assert await run.cancel() == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        assert await run.cancel() == "cancelled"
    async with rota_app.worker() as worker:
        await worker.session.claim_loop.tick()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_cancel_running_job_stops_its_code(rota_harness: Harness, kind: str) -> None:
    app = rota_harness.app
    if kind == "async":

        @app.task
        async def endless() -> None:
            await asyncio.Event().wait()
    else:

        @app.task
        def endless(ctx: Context) -> None:
            while not ctx.cancelled:
                threading.Event().wait(0.005)
            raise RuntimeError("stopped")

    run = await endless.start()
    async with app.worker():
        await rota_harness.wait_for_event(JobClaimed, job=run.id)
        assert await run.cancel() == "requested"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)


async def test_cancel_requested_before_failure_prevents_retry(rota_harness: Harness) -> None:
    """A job that fails before the request reaches its worker is not retried."""
    app = rota_harness.app
    go = asyncio.Event()

    @app.task(retry=Retry(max_attempts=5, delay=0))
    async def fails() -> None:
        await go.wait()
        raise ValueError

    run = await fails.start()
    async with app.worker() as worker:
        await rota_harness.wait_for_event(JobClaimed, job=run.id)
        worker.session.reconciler.on_beat = lambda result: None  # type: ignore[method-assign]
        assert await run.cancel() == "requested"
        go.set()
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)


@pytest.mark.parametrize("why", [StopReason.CANCELLED, StopReason.DRAINED])
async def test_coroutine_stopped_before_first_step_reports_outcome(why: StopReason) -> None:
    """A coroutine that is cancelled before it begins never reaches its own `except`."""
    ended: list[Outcome] = []

    async def never() -> None:
        raise AssertionError

    task = TaskDefinition(never, "never", TaskPolicy())
    job = ClaimedJob(1, 2, 1, 0, 1, 2, "never", "default", "{}", None, None, None, None)
    executor = CoroutineExecutor(lambda _, outcome, took: ended.append(outcome), 1000)

    executor.start(job, task, task.policy.retry, None)
    executor.stop(job, why)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert ended == [FinalOutcome("cancelled", None) if why is StopReason.CANCELLED else Returned()]


async def test_result_wait_leaves_no_waiter_rows(rota_harness: Harness, rota_dsn: str) -> None:
    @rota_harness.app.task
    async def quick() -> int:
        return 1

    async with rota_harness.app.worker():
        runs = [await quick.start() for _ in range(20)]
        for run in runs:
            assert await run.result(timeout=60) == 1
            assert await run.result(timeout=60) == 1  # the run has ended
        with pytest.raises(TimeoutError):
            await (await quick.options(delay=60).start()).result(timeout=0.05)

    assert await fetch(rota_dsn, "select count(*) from rota.waiters") == [(0,)]
