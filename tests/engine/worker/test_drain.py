"""Graceful shutdown: no job is lost or charged, and a draining worker is not declared dead."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import Context, Requeue, Retry, Rota
from rota.model.events import JobClaimed, JobReturned, WorkerDied, WorkerDraining, WorkerStopped
from rota.testing import EventRecorder
from rota.testing.proxy.proxy import Proxy
from support.queries import fetch, poll_for_jobs, until, wait_for_beats

QUICK: dict[str, Any] = {"heartbeat_interval": 0.1, "dead_after": 60, "poll_interval": 0.1}


@pytest.fixture
async def app(rota_dsn: str) -> AsyncIterator[Rota]:
    async with Rota(rota_dsn, **QUICK) as app:
        yield app


async def test_drain_running_jobs_finish_and_unstarted_jobs_return(
    app: Rota,
    rota_dsn: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "rota")
    witness = EventRecorder(app)
    go = asyncio.Event()

    @app.task
    async def slow(n: int) -> int:
        await go.wait()
        return n

    await app.start_many([slow.bind(n=n) for n in range(40)])
    async with app.worker(concurrency=5) as worker:
        while worker.session.slots.running < 5:
            await asyncio.sleep(0.01)
        wait_empty, draining = worker.session.slots.wait_empty, asyncio.Event()

        async def noted() -> None:
            draining.set()
            await wait_empty()

        monkeypatch.setattr(worker.session.slots, "wait_empty", noted)
        leaving = asyncio.create_task(worker.stop())
        await draining.wait()
        go.set()
        await leaving
    assert [event for event in witness.events if isinstance(event, WorkerDied)] == []
    counts = "select state::text, attempt, count(*) from rota.outcomes group by 1, 2"
    assert await fetch(rota_dsn, counts) == [("succeeded", 1, 5)]
    returned = "select count(*), min(attempt), max(crashes), max(suspicion) from rota.queued"
    assert await fetch(rota_dsn, returned) == [(35, 1, 0, None)]
    assert await fetch(rota_dsn, "select count(*) from rota.claims") == [(0,)]
    story = [line for line in caplog.messages if line.startswith(f"worker {worker.id},")]
    assert "draining: 5 running, up to 30 s" in story[0]
    assert "all jobs have ended" in story[-2]
    assert story[-1].endswith("left")


async def test_drain_claim_in_flight_receives_no_jobs(app: Rota, rota_dsn: str) -> None:
    """The worker's row is marked as draining, so that the claim statement itself refuses."""
    go = asyncio.Event()

    @app.task
    async def wait() -> None:
        await go.wait()

    witness = EventRecorder(app)
    first = await wait.start()
    async with app.worker() as worker:
        await witness.wait_for_event(JobClaimed, job=first.id)
        leaving = asyncio.create_task(worker.stop())
        await witness.wait_for_event(WorkerDraining)
        while await fetch(rota_dsn, "select state::text from rota.workers") != [("draining",)]:
            await asyncio.sleep(0.01)
        worker.session.claim_loop._planner._is_open = True  # as if the planner did not know
        second = await wait.start()
        await poll_for_jobs(worker)
        assert await second.status() == "queued"
        go.set()
        await leaving
    assert await first.status() == "succeeded"


async def test_drain_job_beyond_timeout_is_stopped_and_returned_uncharged(
    app: Rota, rota_dsn: str
) -> None:
    stopped = asyncio.Event()

    @app.task(retry=Retry(max_attempts=1))
    async def endless(ctx: Context) -> int:
        try:
            while True:
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            stopped.set()
            raise

    run = await endless.start()
    witness = EventRecorder(app)
    async with app.worker() as worker:
        await witness.wait_for_event(JobClaimed, job=run.id)
        began = time.monotonic()
        await worker.stop(drain_timeout=2.0)
        assert time.monotonic() - began > 0.9
    assert stopped.is_set()
    await witness.wait_for_event(JobReturned, job=run.id)
    assert await fetch(rota_dsn, "select attempt, crashes, suspicion from rota.queued") == [
        (1, 0, None)
    ]


async def test_drain_longer_than_dead_after_keeps_worker_alive(app: Rota, rota_dsn: str) -> None:
    """The draining worker keeps beating, and another worker observes it."""
    go = asyncio.Event()

    @app.task
    async def slow() -> None:
        await go.wait()

    async with Rota(rota_dsn, **QUICK) as other:

        @other.task(queue="elsewhere")
        async def idle() -> None: ...

        watching, witness = EventRecorder(other), EventRecorder(app)
        run = await slow.start()
        async with other.worker() as observer:
            async with app.worker() as worker:
                await witness.wait_for_event(JobClaimed, job=run.id)
                leaving = asyncio.create_task(worker.stop())
                await witness.wait_for_event(WorkerDraining)
                await asyncio.to_thread(wait_for_beats, rota_dsn, worker.id)
                go.set()
                await leaving

            async def observes_departure() -> bool:
                return observer.session.heartbeat._alone

            await until(observes_departure)
        assert [event for event in watching.events if isinstance(event, WorkerDied)] == []
    assert await run.status() == "succeeded"


async def test_drain_async_job_requeues_and_resumes_at_checkpoint(app: Rota, rota_dsn: str) -> None:
    done: list[int] = []

    @app.task(retry=Retry(max_attempts=1))
    async def pages(ctx: Context) -> int:
        for page in range(ctx.resumed_from or 0, 6):
            done.append(page)
            await ctx.checkpoint(page + 1)
            if page == 2 and ctx.resumed_from == 3:
                while not ctx.draining:
                    await asyncio.sleep(0.01)
                raise Requeue
        return len(done)

    run = await pages.start()
    async with app.worker() as worker:
        while 2 not in done:
            await asyncio.sleep(0.01)
        await worker.stop()
    assert await run.status() == "queued"
    async with app.worker():
        assert await run.result(timeout=60) == 6
    assert done == [0, 1, 2, 3, 4, 5]
    assert await fetch(rota_dsn, "select attempt from rota.outcomes") == [(1,)]


async def test_drain_sync_job_requeues_and_resumes_at_checkpoint(app: Rota) -> None:
    done: list[int] = []

    @app.task(retry=Retry(max_attempts=1))
    def pages(ctx: Context) -> int:
        for page in range(ctx.resumed_from or 0, 4):
            done.append(page)
            ctx.sync.checkpoint(page + 1)
            while page == 1 and not ctx.draining and done == [0, 1]:
                time.sleep(0.01)
            if ctx.draining:
                raise Requeue
        return len(done)

    run = await pages.start()
    async with app.worker() as worker:
        while 1 not in done:
            await asyncio.sleep(0.01)
        await worker.stop()
    async with app.worker():
        assert await run.result(timeout=60) == 4
    assert done == [0, 1, 2, 3]


async def test_drain_hurry_does_not_wait_for_running_jobs(app: Rota, rota_dsn: str) -> None:
    @app.task
    async def slow() -> None:
        await asyncio.sleep(3600)

    run = await slow.start()
    witness = EventRecorder(app)
    async with app.worker() as worker:
        await witness.wait_for_event(JobClaimed, job=run.id)
        leaving = asyncio.create_task(worker.stop(drain_timeout=3600))
        await witness.wait_for_event(WorkerDraining)
        worker.hurry()
        await asyncio.wait_for(leaving, 60)
    assert await fetch(rota_dsn, "select attempt, crashes, suspicion from rota.queued") == [
        (1, 0, None)
    ]


async def test_drain_without_database_ends_in_time(rota_dsn: str) -> None:
    with Proxy(rota_dsn) as proxy:
        async with Rota(proxy.dsn, outage_timeout=3600, **QUICK) as app:
            go = asyncio.Event()

            @app.task
            async def slow() -> None:
                await go.wait()

            run = await slow.start()
            witness = EventRecorder(app)
            async with app.worker() as worker:
                await witness.wait_for_event(JobClaimed, job=run.id)
                proxy.refuse()
                proxy.drop()
                go.set()
                await asyncio.wait_for(worker.stop(drain_timeout=4), 60)
            proxy.heal()


async def test_drain_resigns_leadership_before_last_job_ends(app: Rota) -> None:
    go = asyncio.Event()

    begun = asyncio.Event()

    @app.task
    async def slow() -> None:
        begun.set()
        await go.wait()

    leader = app.leader("housekeeping")
    working = asyncio.create_task(app.work())
    async with leader:
        await leader.elected()
        run = await slow.start()
        await begun.wait()
        app.readiness.drain()

        async def resigned() -> bool:
            return not leader.is_leader()

        await until(resigned)
        assert not working.done()
        go.set()
        assert await working
    assert await run.status() == "succeeded"


async def test_drain_requested_in_database_stops_worker(app: Rota, rota_dsn: str) -> None:
    @app.task
    async def nothing() -> None: ...

    witness = EventRecorder(app)
    async with app.worker() as worker:
        assert await fetch(rota_dsn, f"select rota.drain({worker.id})") == [("active",)]
        await witness.wait_for_event(WorkerStopped, worker=worker.id)
        run = await nothing.start()
    assert await run.status() == "queued"
    assert await fetch(rota_dsn, "select rota.drain(1000)") == [(None,)]
