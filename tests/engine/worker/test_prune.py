"""Pruner: the worker that registered first removes old runs, in small batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import Rota
from rota.engine.maintenance import pruner
from rota.engine.maintenance.pruner import Pruner
from rota.model.settings import Settings
from rota.store import retention, workers
from rota.store.database import Database
from support.queries import equals, fetch, until

HISTORY = """
with job as (
    insert into rota.jobs (created, task, queue, args)
    select rota.clock() - {age}::interval, 'work', 'default', '{{}}' from generate_series(1, {count})
    returning id, created
)
insert into rota.outcomes (job, at, state, attempt)
select id, created, {state}, 1 from job
"""
LEFT = "select count(*) from rota.jobs"


async def history(dsn: str, count: int, age: str = "40 days", state: str = "succeeded") -> None:
    text = HISTORY.format(age=f"'{age}'", count=count, state=f"'{state}'::rota.outcome")
    await fetch(dsn, text + " returning job")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pruner begin at once and pause only briefly."""
    monkeypatch.setattr(pruner, "FIRST_PRUNE_SECONDS", 0.0)
    monkeypatch.setattr(pruner, "IDLE_PAUSE_SECONDS", 0.01)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a batch to two runs."""
    find = retention.find
    monkeypatch.setattr(retention, "find", lambda keep, after, most: find(keep, after, 2))


@pytest.fixture
async def database(rota_dsn: str) -> AsyncIterator[Database]:
    database = Database(rota_dsn, Settings(retention="7d failed=forever"))
    yield database
    await database.close()


async def worker(database: Database) -> int:
    [id] = await database.run(workers.register("host", 1, "0", ["default"], ["work"], 1))
    return id


def app_with(dsn: str, **settings: Any) -> Rota:
    app = Rota(dsn, **settings)

    @app.task
    async def work() -> None: ...

    return app


# In a worker


@pytest.mark.usefixtures("at_once")
async def test_pruner_removes_old_runs_and_keeps_recent_runs(rota_dsn: str) -> None:
    await history(rota_dsn, 5000)
    await history(rota_dsn, 3, "1 day")

    async with app_with(rota_dsn) as app, app.worker():
        await until(lambda: equals(rota_dsn, LEFT, 3))

    assert await fetch(rota_dsn, "select count(*) from rota.outcomes") == [(3,)]


@pytest.mark.usefixtures("at_once")
async def test_pruner_follows_retention_setting_of_app(rota_dsn: str) -> None:
    await history(rota_dsn, 2, "2 hours", "failed")
    await history(rota_dsn, 2, "2 hours")

    async with app_with(rota_dsn, retention="forever succeeded=1h") as app, app.worker():
        await until(lambda: equals(rota_dsn, LEFT, 2))


async def test_worker_stop_does_not_wait_for_pruner(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "FIRST_PRUNE_SECONDS", 3600.0)
    app = app_with(rota_dsn, drain_timeout=3600)
    async with asyncio.timeout(60), app, app.worker():
        pass


# Pace


async def test_pruner_of_new_worker_waits_before_first_batch(database: Database) -> None:
    service = Pruner(database, await worker(database))

    rest = await service.tick()

    assert rest is not None
    assert 2 < rest < 8


@pytest.mark.usefixtures("small")
async def test_pruner_pauses_by_batch_time_and_a_minute_when_idle(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "FIRST_PRUNE_SECONDS", 0.0)
    await history(database.dsn, 3)
    service = Pruner(database, await worker(database))
    rests = []
    for _ in range(2):
        monkeypatch.setattr(service, "_next_at", 0.0)
        began = time.monotonic()
        rest = await service.tick()
        assert rest is not None
        rests.append((rest, time.monotonic() - began))

    (busy, took), (idle, _) = rests
    assert 0.5 * pruner.PAUSE_FACTOR * took < busy <= pruner.PAUSE_FACTOR * took
    assert 45 <= idle <= 75
    assert await fetch(database.dsn, LEFT) == [(0,)]


async def test_pruner_with_retention_forever_does_nothing(rota_dsn: str) -> None:
    database = Database("postgresql://nowhere.invalid", Settings(retention="forever"))

    assert await Pruner(database, 1).tick() is None


async def tick_and_pause(service: Pruner, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(await service.tick() or 0)


@pytest.mark.usefixtures("at_once", "small")
async def test_pruner_restart_finds_runs_passed_before(database: Database) -> None:
    await history(database.dsn, 4, state="failed")
    service = Pruner(database, await worker(database))
    await tick_and_pause(service, 3)

    await fetch(database.dsn, "update rota.outcomes set state = 'succeeded' returning job")
    service._restart_at = 0.0  # as if the restart were due
    await tick_and_pause(service, 4)

    assert await fetch(database.dsn, LEFT) == [(0,)]


@pytest.mark.usefixtures("at_once", "small")
async def test_pruner_restarts_later_after_passing_many_runs(database: Database) -> None:
    """Until then it stays at its position, and still removes runs that expire beyond it."""
    await history(database.dsn, 8, state="failed")
    service = Pruner(database, await worker(database))
    await tick_and_pause(service, 5)
    assert service._restart_at is not None
    assert 4 * 20 < service._restart_at - time.monotonic() < 6 * 20

    await fetch(database.dsn, "update rota.outcomes set state = 'succeeded' returning job")
    await history(database.dsn, 1)
    await tick_and_pause(service, 2)

    assert await fetch(database.dsn, LEFT) == [(8,)]


@pytest.mark.usefixtures("at_once")
async def test_pruner_runs_only_in_worker_registered_first(database: Database) -> None:
    await history(database.dsn, 3)
    first = Pruner(database, await worker(database))
    second = Pruner(database, await worker(database))

    await tick_and_pause(second, 2)
    assert await fetch(database.dsn, LEFT) == [(3,)]
    await tick_and_pause(first, 1)
    assert await fetch(database.dsn, LEFT) == [(0,)]
