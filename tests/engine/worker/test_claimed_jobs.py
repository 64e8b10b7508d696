"""Claimed jobs of a worker: how many it holds, and when it returns them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota import Context, Retry, Rota
from rota.engine.worker.claim_loop import ClaimLoop
from rota.model.events import JobClaimed, JobReturned
from rota.testing import Harness
from support.queries import equals, fetch, until


async def _is_flushed(exchange: ClaimLoop) -> bool:
    return exchange.is_flushed


async def test_worker_without_history_claims_only_for_its_slots(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    go = asyncio.Event()

    @app.task
    async def long() -> None:
        await go.wait()

    await app.start_many([long.bind() for _ in range(50)])
    async with app.worker(concurrency=5) as worker:
        await rota_harness.wait_for_event(JobClaimed)
        worker.session.claim_loop.poll_now()
        await until(lambda: _is_flushed(worker.session.claim_loop))
        # Rows in `queued` would prove nothing: jobs that were claimed too early soon return to it.
        assert sum(isinstance(each, JobClaimed) for each in rota_harness.events) == 5
        go.set()
        await until(lambda: equals(rota_dsn, "select count(*) from rota.outcomes", 50))


async def test_worker_prefetched_job_waiting_too_long_is_returned(
    rota_harness: Harness, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After many short jobs the worker prefetches many; then a long job occupies its only slot."""
    monkeypatch.setattr("rota.engine.worker.claim_planner.STALE_JOB_SECONDS", 0.1)
    app = rota_harness.app
    go = asyncio.Event()

    @app.task
    async def work(long: bool) -> None:
        if long:
            await go.wait()

    calls = [work.bind(long=n == 400) for n in range(1200)]
    await app.start_many(calls)
    async with app.worker(concurrency=1):
        given = await rota_harness.wait_for_event(JobReturned)
        assert given.task == "work"
        go.set()
        await until(lambda: equals(rota_dsn, "select count(*) from rota.outcomes", 1200))
    assert await fetch(rota_dsn, "select max(attempt) from rota.outcomes") == [(1,)]


async def test_worker_does_not_prefetch_tasks_with_one_attempt(
    rota_app: Rota, rota_dsn: str
) -> None:
    most = 0

    @rota_app.task(retry=Retry(max_attempts=1))
    async def once() -> None:
        await asyncio.sleep(0)

    await rota_app.start_many([once.bind() for _ in range(2000)])
    async with rota_app.worker(concurrency=10) as worker:
        while (
            worker.session.slots.running
            or most == 0
            or not await equals(rota_dsn, "select count(*) from rota.outcomes", 2000)
        ):
            most = max(most, worker.session.slots.running + worker.session.slots.backlog)
            await asyncio.sleep(0)
    assert most <= 10


async def test_worker_stop_finishes_running_job(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def takes_a_while() -> str:
        await asyncio.sleep(0.2)
        return "done"

    run = await takes_a_while.start()
    async with app.worker():
        await rota_harness.wait_for_event(JobClaimed, job=run.id)

    assert await run.status() == "succeeded"


@pytest.mark.parametrize("kind", ["async", "deaf", "thread"])
async def test_worker_stop_job_beyond_drain_timeout_returns_uncharged(
    rota_dsn: str, kind: str
) -> None:
    go = threading.Event()
    async with (
        Rota(rota_dsn, drain_timeout=0.05, poll_interval=0.05) as app,
        Harness(app) as harness,
    ):
        if kind == "thread":

            @app.task(name="work")
            def work(ctx: Context) -> int:
                if ctx.attempt == 1 and not go.is_set():
                    go.wait(60)
                return ctx.attempt
        else:

            @app.task(name="work")
            async def work(ctx: Context) -> int:
                while not go.is_set():
                    try:
                        await asyncio.sleep(0.01)
                    except asyncio.CancelledError:
                        if kind == "async":
                            raise
                return ctx.attempt

        run = await work.start()
        async with app.worker():
            await harness.wait_for_event(JobClaimed, job=run.id)
        assert await run.status() == "queued"
        assert await fetch(rota_dsn, "select count(*) from rota.claims") == [(0,)]

        go.set()
        async with app.worker():
            assert await run.result(timeout=60) == 1
