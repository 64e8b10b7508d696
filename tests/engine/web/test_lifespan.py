"""`FastAPI(lifespan=app.lifespan)`: starts in order, works beside the requests, and stops in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI
from starlette.types import Message

from rota import Rota
from rota.errors import SchemaMissing
from rota.model import events
from rota.store.database import Database
from rota.testing.server import DatabaseServer
from support.queries import poll_for_jobs


class ServedApi:
    """Application that a server starts and stops, and the state that its lifespan yielded."""

    def __init__(self, api: FastAPI) -> None:
        self._api = api
        self._received: asyncio.Queue[Message] = asyncio.Queue()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self.state: dict[str, Any] = {}

    @asynccontextmanager
    async def served(self) -> AsyncIterator[dict[str, Any]]:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        living = asyncio.create_task(self._api(scope, self._received.get, self._sent.put))
        await self._received.put({"type": "lifespan.startup"})
        assert (await self._sent.get())["type"] == "lifespan.startup.complete"
        try:
            yield self.state
        finally:
            await self._received.put({"type": "lifespan.shutdown"})
            assert (await self._sent.get())["type"] == "lifespan.shutdown.complete"
            await living


async def worker_states(app: Rota) -> list[str]:
    database = (await app.open()).database
    async with database.connection() as connection:
        found = await connection.execute("select state::text from rota.workers order by id")
        return [row[0] for row in await found.fetchall()]


@pytest.fixture
def app(rota_dsn: str) -> Rota:
    return Rota(rota_dsn, poll_interval=0.1, drain_timeout=20.0)


async def test_lifespan_runs_a_worker_beside_requests(app: Rota) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    async with ServedApi(FastAPI(lifespan=app.lifespan)).served() as state:
        assert state["rota"] is app
        assert await app.readiness.reasons() == []
        run = await double.start(21)
        assert await run.result(timeout=60) == 42
    assert [each.code for each in await app.readiness.reasons()] == ["draining"]
    async with app:
        assert await worker_states(app) == ["stopped"]


async def test_lifespan_inside_user_lifespan_ends_jobs_before_resources_close(app: Rota) -> None:
    """The resources of the jobs are open before the first job begins and until the last has ended."""
    told: list[str] = []

    @app.task
    async def use() -> None:
        told.append("begins")
        draining.set()
        await asyncio.sleep(0.2)
        told.append("ends")

    draining = asyncio.Event()

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[dict[str, Any]]:
        told.append("opened")
        async with app.lifespan(api) as state:
            yield {**state, "engine": "mine"}
        told.append("closed")

    async with ServedApi(FastAPI(lifespan=lifespan)).served() as state:
        assert state == {"rota": app, "engine": "mine"}
        await use.start()
        await draining.wait()
    assert told == ["opened", "begins", "ends", "closed"]


async def test_lifespan_is_not_ready_until_worker_is_registered(
    app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rota.store import workers

    starting: list[bool] = []
    register = workers.register

    def registering(*given: Any, **named: Any) -> Any:
        starting.append(app.readiness.is_starting)
        return register(*given, **named)

    @app.task
    async def nothing() -> None: ...

    monkeypatch.setattr(workers, "register", registering)
    async with app.lifespan():
        assert await app.readiness.reasons() == []
    assert starting == [True]


async def test_lifespan_missing_schema_is_raised_before_serving(
    rota_server: DatabaseServer,
) -> None:
    with rota_server.database() as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("drop schema rota cascade")
        app = Rota(dsn)
        with pytest.raises(SchemaMissing):
            async with app.lifespan():
                pytest.fail("it was served")
        assert not app.readiness.is_starting


@pytest.mark.parametrize("how", ["setting", "argument"])
async def test_lifespan_without_worker_runs_no_jobs(rota_dsn: str, how: str) -> None:
    app = Rota(rota_dsn, web_worker=how != "setting")
    lifespan = app.lifespan if how == "setting" else app.lifespan.options(worker=False)

    @app.task
    async def elsewhere() -> None: ...

    async with lifespan():
        run = await elsewhere.start()
        assert await worker_states(app) == []
        assert await app.readiness.reasons() == []
    async with app:
        assert await run.status() == "queued"


async def test_lifespan_drain_stops_claims_and_leadership_but_not_starts(app: Rota) -> None:
    """From then on nothing is claimed and leaderships are resigned. Runs can still be started, and the
    worker stays in state draining until the last request was answered.
    """

    @app.task
    async def note() -> None: ...

    leader = app.leader("accounts")
    async with app.lifespan(), leader:
        await leader.elected()

        app.readiness.drain(delay=10)

        assert [each.code for each in await app.readiness.reasons()] == ["draining"]
        async with asyncio.timeout(60):
            while await worker_states(app) != ["draining"] or leader.is_leader():
                await asyncio.sleep(0.01)
        run = await note.start()
        client = await app.open()
        assert client.worker is not None
        await poll_for_jobs(client.worker)
        assert await run.status() == "queued"
        assert await worker_states(app) == ["draining"]
    async with app:
        assert await worker_states(app) == ["stopped"]


async def test_lifespan_drain_hands_over_services_after_their_iteration(app: Rota) -> None:
    """The current iteration ends first."""
    began, ended = asyncio.Event(), asyncio.Event()

    @app.service("monitor", every=0.05)
    async def monitor() -> None:
        began.set()
        await asyncio.sleep(0.5)
        ended.set()

    async with app.lifespan():
        async with asyncio.timeout(60):
            await began.wait()
            app.readiness.drain(delay=10)
            client = await app.open()
            while client.services is None or client.services.list_running():
                await asyncio.sleep(0.01)
        assert ended.is_set()


async def test_lifespan_drain_ends_running_job_before_connections_close(
    app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the worker stops, and the connections are closed last."""
    began, go = asyncio.Event(), asyncio.Event()
    told: list[str] = []
    close = Database.close

    async def closing(database: Database) -> None:
        told.append("closed")
        await close(database)

    monkeypatch.setattr(Database, "close", closing)
    app.subscribe(lambda event: told.append(type(event).__name__))

    @app.task
    async def last() -> str:
        began.set()
        await go.wait()
        return "done"

    async with app.lifespan():
        run = await last.start()
        await began.wait()
        app.readiness.drain(delay=0)
        asyncio.get_running_loop().call_later(0.3, go.set)
    assert told[-4:] == ["WorkerDraining", "JobFinished", "WorkerStopped", "closed"]
    assert told.count("closed") == 1
    async with app:
        assert await run.result(timeout=60) == "done"


@pytest.mark.parametrize("when", ["while requests are served", "when they have been"])
async def test_lifespan_hurried_job_is_requeued_without_counting_attempt(
    app: Rota, when: str
) -> None:
    began = asyncio.Event()
    app.settings = replace(app.settings, drain_timeout=3600.0)

    @app.task
    async def last() -> None:
        began.set()
        await asyncio.sleep(3600)

    async with asyncio.timeout(60), app.lifespan():
        run = await last.start()
        await began.wait()
        if when == "while requests are served":
            app.readiness.hurry()
        else:
            asyncio.get_running_loop().call_later(0.3, app.readiness.hurry)
    async with app:
        assert await run.status() == "queued"
        database = (await app.open()).database
        async with database.connection() as connection:
            found = await connection.execute("select attempt from rota.queued")
            assert await found.fetchall() == [(1,)]


async def test_lifespan_remote_drain_stops_worker_and_keeps_api_ready(app: Rota) -> None:
    left = asyncio.Event()

    @app.task
    async def note() -> None: ...

    def hear(event: events.Event) -> None:
        if isinstance(event, events.WorkerStopped):
            left.set()

    app.subscribe(hear)
    async with app.lifespan():
        client = await app.open()
        assert client.worker is not None
        await app.drain(client.worker.id)
        async with asyncio.timeout(60):
            await left.wait()
        # Requests are still answered; the runs they start wait for another worker.
        assert await app.readiness.reasons() == []
        assert await (await note.start()).status() == "queued"


async def test_lifespan_requests_during_drain_log_no_warnings(
    app: Rota, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests during the shutdown are answered, because connections are closed last."""
    answers: list[int] = []

    async def answered(count: int) -> None:
        async with asyncio.timeout(60):
            while len(answers) < count:
                await asyncio.sleep(0.005)

    @app.task
    async def note(number: int) -> None:
        await asyncio.sleep(0.05)

    async def ask() -> None:
        while not done.is_set():
            answers.append((await note.start(len(answers))).id)

    done = asyncio.Event()
    with caplog.at_level(logging.INFO):
        async with app.lifespan():
            asking = [asyncio.create_task(ask()) for _ in range(5)]
            await answered(10)
            app.readiness.drain(delay=3600)
            await answered(len(answers) + 10)
            done.set()
            await asyncio.gather(*asking)
    assert "closed" not in caplog.text
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
