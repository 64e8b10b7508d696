"""Minute statistics: every count is written once, and an idle worker writes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.engine.db_clock import DatabaseClock
from rota.engine.telemetry import minute_stats
from rota.engine.telemetry.counters import Counters
from rota.engine.telemetry.minute_stats import MinuteStats
from rota.store.database import Database
from rota.store.jobs import ClaimedJob
from rota.store.query import Query

SUMS = "select coalesce(sum(claimed), 0), coalesce(sum(succeeded), 0) from rota.minute_stats"


@pytest.fixture
async def database(rota_app: Rota) -> Database:
    return (await rota_app.open()).database


async def one(db: AsyncConnection[Any], text: str) -> Any:
    return await (await db.execute(text.encode())).fetchone()


def jobs(count: int, task: str = "work") -> list[ClaimedJob]:
    return [
        ClaimedJob(1, number, 1, 0, 0, number, task, "default", "{}", None, None, None, None)
        for number in range(count)
    ]


async def now_of(db: AsyncConnection[Any]) -> datetime:
    found: datetime = (await one(db, "select rota.clock()"))[0]
    return found


async def test_minute_stats_after_worker_stop_are_complete(
    rota_app: Rota, db: AsyncConnection[Any]
) -> None:
    @rota_app.task
    async def work() -> None: ...

    async with rota_app.worker():
        runs = await rota_app.start_many([work.bind() for _ in range(300)])
        await asyncio.gather(*(run.result(timeout=60) for run in runs))

    assert await one(db, SUMS) == (300, 300)
    took = (
        "select sum(attempts), sum(seconds) > 0, sum(wait_count), "
        "sum(wait_seconds) > 0 from rota.minute_stats"
    )
    assert await one(db, took) == (300, True, 300, True)


async def test_minute_stats_count_belongs_to_minute_of_clock(
    database: Database, db: AsyncConnection[Any]
) -> None:
    meters, clock = Counters(), DatabaseClock(await now_of(db))
    loop = MinuteStats(database, 1, clock, meters)
    meters.count_claim(jobs(3))
    await loop.tick()
    clock.set(clock.now() + timedelta(minutes=1))
    meters.count_claim(jobs(4))
    await loop.tick()
    # After the clock is set back, counts go to the minute before.
    clock.set(clock.now() - timedelta(minutes=1))
    meters.count_claim(jobs(5))
    await loop.tick()

    rows = await (
        await db.execute("select claimed from rota.minute_stats order by minute")
    ).fetchall()
    assert rows == [(8,), (4,)]


async def test_minute_stats_lost_answer_is_resent_and_counted_once(
    database: Database, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    meters = Counters()
    loop = MinuteStats(database, 1, DatabaseClock(await now_of(db)), meters)
    meters.count_claim(jobs(5))
    run = Database.run

    async def cut_off(self: Database, query: Query[Any], patience: float = 0.0) -> list[Any]:
        await run(self, query, patience)
        raise ConnectionError("it was written, and nobody heard of it")

    monkeypatch.setattr(Database, "run", cut_off)
    with pytest.raises(ConnectionError):
        await loop.tick()
    monkeypatch.undo()
    meters.count_claim(jobs(2))
    await loop.tick()

    assert await one(db, "select sum(claimed), count(*) from rota.minute_stats") == (7, 1)


async def test_minute_stats_written_counts_are_not_written_again(
    database: Database, db: AsyncConnection[Any]
) -> None:
    meters = Counters()
    loop = MinuteStats(database, 1, DatabaseClock(await now_of(db)), meters)
    meters.count_claim(jobs(5))
    await loop.tick()
    await db.execute("delete from rota.minute_stats")
    await loop.tick()
    await loop.close()

    assert await one(db, "select count(*) from rota.minute_stats") == (0,)


async def test_minute_stats_close_without_database_returns(
    database: Database, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    meters = Counters()
    loop = MinuteStats(database, 1, DatabaseClock(await now_of(db)), meters)
    meters.count_claim(jobs(5))

    async def away(*_: Any) -> list[Any]:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(Database, "run", away)
    await loop.close()


async def test_minute_stats_without_counts_write_nothing(
    database: Database, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = Database.run

    async def counting(self: Database, query: Query[Any], patience: float = 0.0) -> list[Any]:
        asked.append(query.statement)
        return await run(self, query, patience)

    monkeypatch.setattr(Database, "run", counting)
    meters, clock = Counters(), DatabaseClock(datetime(2026, 11, 15, 12, 0, 1, tzinfo=UTC))
    loop = MinuteStats(database, 1, clock, meters)
    rests = [await loop.tick() for _ in range(20)]
    assert asked == []
    assert all(0 < rest <= minute_stats.WRITE_SECONDS for rest in rests)

    # Once a minute a worker samples the depth of the queues.
    clock.set(clock.now() + timedelta(minutes=1))
    await loop.tick()
    await loop.tick()
    assert asked == ["metric/sample_queues"]


async def test_minute_stats_compaction_removes_old_samples(
    database: Database, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minute_stats, "COMPACT_SECONDS", 0.0)
    await db.execute(
        "insert into rota.queue_samples values (rota.clock() - interval '8 days', 'default', 1, 0, 1)"
    )
    loop = MinuteStats(database, 1, DatabaseClock(await now_of(db)), Counters())
    await loop.tick()

    assert await one(db, "select count(*) from rota.queue_samples") == (0,)
