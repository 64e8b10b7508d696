"""Schedules in a running worker: each tick starts one run, in time, also in a busy worker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Context, Rota
from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.scheduling import scheduler
from rota.model.events import ScheduleTicked
from rota.testing import Harness
from rota.testing.proxy.connection import CutPoint
from rota.testing.proxy.proxy import Proxy

DB = AsyncConnection[tuple[Any, ...]]

LATE = """
select max(extract(epoch from at - tick))::float8 from rota.ticks where schedule = %s and state = 'started'
"""

FOREIGN = """
insert into rota.schedules (name, declared, kind, target, input, every, anchor, next, due)
values ('foreign', false, 'task', 'elsewhere', '{}', 3600, rota.clock(), rota.clock(),
        rota.clock() - interval '1 h')
"""


Ran = Counter[datetime | None]


def define(app: Rota, every: float = 0.2, ran: Ran | None = None, **how: Any) -> Ran:
    ran = Counter() if ran is None else ran

    @app.schedule(every=every, overlap="allow", catch_up="all", **how)
    @app.task
    async def beat(ctx: Context) -> None:
        ran[ctx.scheduled_for] += 1

    return ran


async def until(ran: Counter[Any], count: int, within: float = 60) -> None:
    async with asyncio.timeout(within):
        while len(ran) < count:
            await asyncio.sleep(0.01)


def check(ran: Ran, every: float = 0.2) -> None:
    """Assert that each tick ran once and none is missing."""
    assert set(ran.values()) == {1}
    ticks = sorted(tick for tick in ran if tick is not None)
    assert len(ticks) == len(ran)
    assert {b - a for a, b in pairwise(ticks)} == {timedelta(seconds=every)}


async def fetch_row(db: DB, query: str, *params: Any) -> Any:
    [row] = await (await db.execute(query.encode(), params)).fetchall()
    return row[0] if len(row) == 1 else row


async def test_tick_with_two_workers_starts_one_run(rota_app: Rota, rota_dsn: str) -> None:
    ran = define(rota_app)
    async with Rota(rota_dsn, poll_interval=0.1) as other:
        define(other, ran=ran)
        async with rota_app.worker(), other.worker():
            await until(ran, 8)
    check(ran)


async def test_schedule_of_flow_created_at_run_time_starts_run(rota_harness: Harness) -> None:
    app = rota_harness.app
    seen: list[tuple[str, datetime | None, bool]] = []
    flow = app.flow("etl")

    @flow.task
    async def extract(ctx: Context, day: str) -> None:
        seen.append((day, ctx.scheduled_for, ctx.backfilled))

    at = datetime.now(UTC) + timedelta(seconds=0.5)
    async with app.worker():
        await app.schedules.create("nightly", flow, at=at, input={"day": "monday"})
        await rota_harness.wait_for_event(ScheduleTicked, schedule="nightly")
        async with asyncio.timeout(60):
            while not seen:
                await asyncio.sleep(0.01)
    assert seen == [("monday", at, False)]


# Punctuality


@dataclass
class Poll:
    """Finished poll of a scheduler."""

    began: float
    is_requested: bool
    """True if schedules had changed."""
    misses_before: int
    misses: int
    """Consecutive polls, with this one, that found a due schedule and could not start it."""
    had_report: bool
    """True if a claim poll reported during it. If a schedule was due, the next poll follows at once."""


@dataclass
class SchedulerCalls:
    """Calls and queries of the schedulers, in order."""

    polls: list[Poll] = field(default_factory=list)
    reports: int = 0
    """Claim polls that reported when the next schedule is due."""
    queries: list[str] = field(default_factory=list)

    async def further(self, *, polls: int = 0, reports: int = 0) -> None:
        """Wait for this many further polls and reports."""
        polls, reports = len(self.polls) + polls, self.reports + reports
        async with asyncio.timeout(60):
            while len(self.polls) < polls or self.reports < reports:
                await asyncio.sleep(0.005)

    def delays(self) -> list[tuple[int, float]]:
        """Return the delays after polls that started nothing: the consecutive misses, and the seconds."""
        return [
            (poll.misses, after.began - poll.began)
            for poll, after in pairwise(self.polls)
            if poll.misses and not poll.had_report
            if after.misses_before == poll.misses and not after.is_requested
        ]

    async def check_backoff(self, longest: float) -> None:
        """Assert that each delay is twice the one before, up to `longest`, for several polls."""
        async with asyncio.timeout(60):
            while len(delays := self.delays()) < 3 or delays[-1][0] < 4:
                await asyncio.sleep(0.005)
        for misses, seconds in delays:
            assert seconds >= min(scheduler.FIRST_RETRY_SECONDS * 2.0**misses, longest), delays


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> SchedulerCalls:
    """Return the record of the calls of all schedulers."""
    made = SchedulerCalls()
    fire, cls = scheduling_fire.fire, scheduler.Scheduler
    query, poll, report = cls._query, cls._poll, cls.on_next_schedule

    async def recorded_fire(*given: Any) -> Any:
        made.queries.append("fire")
        return await fire(*given)

    async def recorded_query(self: scheduler.Scheduler, asked: Any) -> Any:
        made.queries.append(asked.statement)
        return await query(self, asked)

    async def recorded_poll(self: scheduler.Scheduler) -> None:
        began, reports = time.monotonic(), made.reports
        before = self._schedules_changed, self._misses
        await poll(self)
        made.polls.append(Poll(began, *before, self._misses, made.reports > reports))

    def recorded_report(self: scheduler.Scheduler, due_in: float | None) -> None:
        report(self, due_in)
        made.reports += 1

    monkeypatch.setattr(scheduling_fire, "fire", recorded_fire)
    monkeypatch.setattr(cls, "_query", recorded_query)
    monkeypatch.setattr(cls, "_poll", recorded_poll)
    monkeypatch.setattr(cls, "on_next_schedule", recorded_report)
    return made


async def test_scheduler_in_full_worker_fires_ticks(
    rota_app: Rota, db: DB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "MIN_FALLBACK_POLL_SECONDS", 0.5)
    go = asyncio.Event()
    app = rota_app
    ran = define(app, every=0.3)

    @app.task
    async def long() -> None:
        await go.wait()

    await app.start_many([long.bind(), long.bind()])
    async with app.worker(concurrency=2):
        async with asyncio.timeout(60):
            while (fired := await fetch_row(db, "select count(*)::int from rota.ticks")) < 4:
                await asyncio.sleep(0.05)
        assert not ran
        go.set()
        await until(ran, fired)
    check(ran, 0.3)


async def test_scheduler_in_full_worker_polls_for_unannounced_schedule(
    rota_app: Rota, db: DB, calls: SchedulerCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "MIN_FALLBACK_POLL_SECONDS", 0.5)
    go, there = asyncio.Event(), asyncio.Event()

    @rota_app.task
    async def long() -> None:
        there.set()
        await go.wait()

    await long.start()
    async with rota_app.worker(concurrency=1):
        await asyncio.wait_for(there.wait(), 60)
        await calls.further(polls=2)  # the last report has expired
        await db.execute(FOREIGN.replace("'elsewhere'", "'long'").encode())
        async with asyncio.timeout(60):
            while not await fetch_row(db, "select count(*) from rota.ticks"):
                await asyncio.sleep(0.02)
        go.set()


async def test_scheduler_with_long_poll_interval_receives_change(
    direct_dsn: str, db: DB, calls: SchedulerCalls
) -> None:
    async with Rota(direct_dsn, poll_interval=600) as app:

        @app.task
        async def ring() -> None: ...

        async with app.worker() as worker:
            listener = (await app.open()).listener
            await calls.further(polls=1, reports=1)
            async with asyncio.timeout(60):
                while (
                    not listener.is_listening("rota.wake")
                    or worker.session.scheduler._schedules_changed
                ):
                    await asyncio.sleep(0.005)
            await app.schedules.create("once", ring, at=datetime.now(UTC) - timedelta(hours=1))
            async with asyncio.timeout(60):
                while not await fetch_row(db, "select count(*) from rota.ticks"):
                    await asyncio.sleep(0.02)


async def test_scheduler_without_notifications_fires_ticks(rota_dsn: str, db: DB) -> None:
    async with Rota(rota_dsn, poll_interval=600, notify=False) as app:
        define(app, every=0.3)
        async with app.worker(), asyncio.timeout(60):
            while not await fetch_row(db, "select ticks >= 3 from rota.schedules"):
                await asyncio.sleep(0.05)


async def test_scheduler_foreign_due_schedule_keeps_own_poll_time(rota_app: Rota) -> None:
    client = await rota_app.open()
    one = scheduler.Scheduler(client.database, client.notifier, rota_app.event_bus, 1, {})
    ours = one._poll_at = time.monotonic() + 1
    one._misses, one._missed_at = 10, time.monotonic()
    one.on_next_schedule(-60.0)
    assert one._poll_at == ours
    # No schedule is due any more, so the next poll is later.
    one.on_next_schedule(30.0)
    assert one._poll_at > ours


async def test_scheduler_foreign_due_schedule_causes_backoff_not_delay(
    rota_app: Rota, db: DB, calls: SchedulerCalls
) -> None:
    await db.execute(FOREIGN.encode())
    ran = define(rota_app, every=0.5)
    async with rota_app.worker():
        await until(ran, 3)
        await rota_app.schedules.pause("beat")
        await calls.further(polls=2)  # the second has begun after the pause
        calls.polls.clear()
        # The claim polls report the foreign schedule ten times a second; the scheduler backs off.
        await calls.check_backoff(scheduler.MIN_FALLBACK_POLL_SECONDS)
    check(ran, 0.5)


async def test_scheduler_without_due_schedule_makes_no_queries(
    rota_dsn: str, calls: SchedulerCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report of a claim poll also postpones the scheduler's own poll."""
    monkeypatch.setattr(scheduler, "MIN_FALLBACK_POLL_SECONDS", 3600.0)
    monkeypatch.setattr(scheduler, "IDLE_SWEEP_SECONDS", 3600.0)
    # A notification would make the scheduler poll.
    async with Rota(rota_dsn, poll_interval=0.1, notify=False) as app:

        @app.schedule("0 0 1 1 *")
        @app.task
        async def yearly() -> None: ...

        async with app.worker() as worker:
            await calls.further(polls=1, reports=1)
            calls.queries.clear()
            postponed_to = worker.session.scheduler._poll_at
            await calls.further(reports=15)
            assert calls.queries in ([], ["tick/open_ticks"])
            assert worker.session.scheduler._poll_at > postponed_to


async def test_scheduler_locked_schedule_is_polled_again_after_pause(
    rota_app: Rota, db: DB, calls: SchedulerCalls
) -> None:
    ran = define(rota_app, every=0.3)
    async with rota_app.worker():
        await until(ran, 1)
        async with db.transaction():
            await db.execute("select from rota.schedules for update")
            await calls.check_backoff(scheduler.MAX_CONTENDED_RETRY_SECONDS)
        ticks = len(ran)
        await until(ran, ticks + 4, within=60)
    check(ran, 0.3)


# Workers that start and stop


async def test_scheduler_after_worker_stop_other_worker_fires_ticks(rota_dsn: str, db: DB) -> None:
    async with (
        Rota(rota_dsn, poll_interval=0.1) as first,
        Rota(rota_dsn, poll_interval=0.1) as second,
    ):
        ran = define(first)
        define(second, ran=ran)
        async with second.worker(), first.worker() as worker:
            await until(ran, 4)
            await worker.stop()
            left = len(ran)
            await until(ran, left + 4)
    check(ran)


@asynccontextmanager
async def worker_through_proxy(proxy: Proxy) -> AsyncIterator[tuple[Rota, Ran]]:
    async with Rota(proxy.dsn, poll_interval=0.1, heartbeat_interval=0.2) as app:
        ran = define(app)
        async with app.worker():
            await until(ran, 2)
            yield app, ran


async def test_scheduler_after_outage_catches_up_missed_ticks(
    rota_dsn: str,
) -> None:
    with Proxy(rota_dsn) as proxy:
        async with worker_through_proxy(proxy) as (_, ran):
            proxy.refuse()
            proxy.reset()
            await asyncio.sleep(1)
            ticks = len(ran)
            proxy.heal()
            await until(ran, ticks + 7)
    check(ran)


async def test_scheduler_cut_commit_starts_each_tick_once(rota_dsn: str) -> None:
    with Proxy(rota_dsn) as proxy:
        async with worker_through_proxy(proxy) as (_, ran):
            ways: list[CutPoint] = ["before", "sent", "answered"]
            for number, where in enumerate(ways, 1):
                ticks = len(ran)
                proxy.cut(where, matching="COMMIT")
                await asyncio.to_thread(proxy.wait_for_cuts, number)
                await until(ran, ticks + 3)
    check(ran)


# Outcomes of runs


@pytest.fixture
def short_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "SWEEP_SECONDS", 0.5)


NOTED = "select last_success is not null from rota.schedules"


async def wait_for_success(db: DB) -> None:
    async with asyncio.timeout(60):
        while not await fetch_row(db, NOTED):
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("short_sweep")
async def test_scheduler_records_outcome_of_one_time_schedule(rota_app: Rota, db: DB) -> None:
    @rota_app.schedule(at=datetime.now(UTC))
    @rota_app.task
    async def once() -> None: ...

    async with rota_app.worker():
        await wait_for_success(db)
    assert await fetch_row(db, "select outcome::text, ended >= at from rota.ticks") == (
        "succeeded",
        True,
    )


@pytest.mark.usefixtures("short_sweep")
async def test_scheduler_of_next_worker_records_earlier_outcome(
    rota_app: Rota, db: DB, monkeypatch: pytest.MonkeyPatch
) -> None:
    @rota_app.schedule(at=datetime.now(UTC))
    @rota_app.task
    async def once() -> None: ...

    with monkeypatch.context() as blind:
        blind.setattr(scheduler.Scheduler, "_sweep", lambda self: asyncio.sleep(0.01))
        async with rota_app.worker():
            async with asyncio.timeout(60):
                while not await fetch_row(db, "select count(*) from rota.outcomes"):
                    await asyncio.sleep(0.05)
    assert not await fetch_row(db, NOTED)
    async with rota_app.worker():
        await wait_for_success(db)
