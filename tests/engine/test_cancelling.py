"""Cancelling: what never ran never does, what runs is told."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota import Context, Retry, Rota, RunCancelled
from rota.model.events import JobClaimed
from rota.testing import Harness


async def test_a_queued_job_is_cancelled_at_once(rota_app: Rota) -> None:
    @rota_app.task
    async def never() -> None:
        raise AssertionError

    for how in (never, never.using(delay=60)):
        run = await how.start()
        assert await run.cancel() == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result(timeout=10)
        assert await run.cancel() == "cancelled"
    async with rota_app.worker() as worker:
        await worker.exchange.tick()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_running_job_learns_that_it_is_cancelled(rota_harness: Harness, kind: str) -> None:
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
        await rota_harness.saw(JobClaimed, job=run.id)
        assert await run.cancel() == "requested"
        with pytest.raises(RunCancelled):
            await run.result(timeout=10)


async def test_a_wish_to_cancel_outlives_a_failing_attempt(rota_harness: Harness) -> None:
    """The job fails while the wish is on its way: it is not tried again."""
    app = rota_harness.app
    go = asyncio.Event()

    @app.task(retry=Retry(attempts=5, wait=0))
    async def fails() -> None:
        await go.wait()
        raise ValueError

    run = await fails.start()
    async with app.worker() as worker:
        await rota_harness.saw(JobClaimed, job=run.id)
        worker.presence.stop()  # it will not hear of the wish
        assert await run.cancel() == "requested"
        go.set()
        with pytest.raises(RunCancelled):
            await run.result(timeout=10)
