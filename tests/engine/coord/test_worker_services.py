"""Services of a worker: they run beside its jobs and are handed over as soon as the worker drains."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

from rota import Rota
from rota.engine.worker.worker import Worker
from rota.errors import DefinitionError
from rota.model.events import ServiceRan
from rota.model.service import ServiceContext
from support.service_helpers import outcomes, record_iterations, registered, run_sql, until


async def stop_worker(app: Rota, worker: Worker) -> None:
    await worker.stop()


async def drain_from_other_app(app: Rota, worker: Worker) -> None:
    await app.drain(worker.id)


@pytest.mark.parametrize("drain", [stop_worker, drain_from_other_app])
async def test_worker_drain_hands_services_over_before_jobs_end(
    rota_dsn: str, drain: Callable[[Rota, Worker], Awaitable[None]]
) -> None:
    started, enough = asyncio.Event(), asyncio.Event()
    app = Rota(rota_dsn, heartbeat_interval=0.3)
    async with app, Rota(rota_dsn) as other:
        here, elsewhere = record_iterations(app), record_iterations(other)

        @app.task
        async def long() -> None:
            started.set()
            await enough.wait()

        for each in (app, other):
            each.service("filings", every=0.1)(lambda: None)
        async with app.worker() as worker:
            run = await long.start()
            await asyncio.wait_for(started.wait(), 60)
            await until(lambda: here)
            async with other.services():
                await registered(other, 2)
                assert not elsewhere
                leaving = asyncio.ensure_future(drain(other, worker))
                await until(lambda: elsewhere, within=60)
                assert not enough.is_set()
                enough.set()
                await leaving
                await run.result(timeout=60)


async def test_worker_hurry_stops_its_services(rota_dsn: str) -> None:
    running = asyncio.Event()
    app = Rota(rota_dsn, drain_timeout=3600)
    async with app:
        app.task(name="nothing")(lambda: None)

        @app.service("filings", every=60)
        async def filings() -> None:
            running.set()
            await asyncio.sleep(3600)

        async with app.worker() as worker:
            await asyncio.wait_for(running.wait(), 60)
            worker.hurry()
        assert await outcomes(app) == ["stopped"]


async def test_worker_with_services_false_runs_none(rota_app: Rota) -> None:
    heard = record_iterations(rota_app)
    nothing = rota_app.task(name="nothing")(lambda: None)
    rota_app.service("filings", every=0.1)(lambda: None)
    async with rota_app.worker(services=False):
        await (await nothing.start()).result(timeout=60)
    assert not heard
    assert await run_sql(rota_app, "select from rota.instances") == []


async def test_app_with_only_services_works_until_second_signal(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    running, stopping, told, contexts = asyncio.Event(), asyncio.Event(), [], []

    @app.service("filings", every=60)
    async def filings(ctx: ServiceContext) -> None:
        contexts.append(ctx)
        running.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopping.set()
            raise

    def hear(event: object) -> None:
        if isinstance(event, ServiceRan):
            told.append(event.outcome)

    async with app:
        with pytest.raises(DefinitionError, match="services but no tasks"):
            async with app.worker():
                pass
        app.subscribe(hear)
        working = asyncio.create_task(app.work())
        # Wait for the function, not for its row, which is written before the function begins. A signal in
        # between would end the app at once, and the second signal would reach a process without handlers.
        await asyncio.wait_for(running.wait(), 60)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: contexts[0].stopping)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stopping.is_set()  # after one signal the service may end by itself
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stopping.wait(), 60)
        assert await asyncio.wait_for(working, 60) is False
    assert told == ["stopped"]


async def test_worker_with_invalid_service_leaves_no_row(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    async with app:
        app.task(name="nothing")(lambda: None)
        app.service("filings", every=60)(lambda one, two: None)  # type: ignore[type-var]
        with pytest.raises(DefinitionError, match="takes one, two"):
            async with app.worker():
                pass
        rows = await run_sql(app, "select from rota.workers where state <> 'stopped'")
        assert rows == []
