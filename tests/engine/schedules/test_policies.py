"""Schedule policies: overlap, catch-up, end and pause after failures, with a worker. The tests set the
clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Context, Retry, Rota
from rota.engine.scheduling import scheduler
from rota.model.events import ScheduleTicked
from rota.testing import Harness

DB = AsyncConnection[tuple[Any, ...]]
NOON = datetime(2031, 3, 30, 12, tzinfo=UTC)
STEP = timedelta(minutes=10)

MANY = 14 * 24 * 6
"""Number of ticks in two weeks."""

TOLD = "select tick, state, outcome::text from rota.ticks order by tick"


async def fetch_rows(db: DB, query: str) -> list[Any]:
    return await (await db.execute(query.encode())).fetchall()


async def eventually(db: DB, query: str, wanted: Any, within: float = 60) -> None:
    found: Any = None
    try:
        async with asyncio.timeout(within):
            while (found := await fetch_rows(db, query)) != wanted:
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{query}: {found}, not {wanted}")


def nth(n: float) -> datetime:
    return NOON + n * STEP


@pytest.fixture
def short_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scheduler record ended runs within 0.3 seconds."""
    monkeypatch.setattr(scheduler, "SWEEP_SECONDS", 0.3)


class Bell:
    """A schedule every ten minutes from noon on, whose runs wait for the event `go`."""

    def __init__(self, harness: Harness, db: DB, **how: Any) -> None:
        self.app, self.clock, self.db = harness.app, harness.clock, db
        self.began: list[datetime | None] = []
        self.ended: list[datetime | None] = []
        self.go = asyncio.Event()

        @self.app.schedule(every=600, starts=NOON, **how)
        @self.app.task(retry=Retry(max_attempts=1))
        async def ring(ctx: Context) -> None:
            self.began.append(ctx.scheduled_for)
            await self.go.wait()
            self.ended.append(ctx.scheduled_for)

    async def at(self, n: float) -> None:
        await self.clock.set(nth(n))

    async def began_at(self, *numbers: float, within: float = 60) -> None:
        wanted = [nth(n) for n in numbers]
        async with asyncio.timeout(within):
            while self.began != wanted:
                await asyncio.sleep(0.01)

    async def told(self, *wanted: tuple[float, str, str | None], within: float = 60) -> None:
        rows = [(nth(n), state, outcome) for n, state, outcome in wanted]
        await eventually(self.db, TOLD, rows, within)


MakeBell = Callable[..., Awaitable[Bell]]


@pytest.fixture
async def bell(rota_harness: Harness, db: DB, short_sweep: None) -> MakeBell:
    async def make(**how: Any) -> Bell:
        bell = Bell(rota_harness, db, **how)
        await bell.at(-0.5)
        return bell

    return make


# Overlap with an open run


async def test_overlap_skip_with_open_run_skips_tick(bell: MakeBell) -> None:
    ring = await bell(overlap="skip")
    async with ring.app.worker():
        await ring.at(0)
        await ring.began_at(0)
        await ring.at(1)
        await ring.told((0, "started", None), (1, "skipped", None))
        ring.go.set()
        await ring.told((0, "started", "succeeded"), (1, "skipped", None))
        await ring.at(2)
        await ring.began_at(0, 2)


async def test_overlap_queue_one_starts_tick_when_run_ends(bell: MakeBell) -> None:
    ring = await bell(overlap="queue_one")
    async with ring.app.worker():
        waiting = [(1, "queued", None), (2, "skipped", None), (3, "skipped", None)]
        for n in range(4):
            await ring.at(n)
            await ring.told((0, "started", None), *waiting[:n])
        # The scheduler polls by the database's clock, which the test has stopped and must advance.
        ring.go.set()
        await ring.told((0, "started", "succeeded"), *waiting)
        await ring.at(3.03)
        await ring.began_at(0, 1)
        # Wait for the end of the run: the next tick would be queued behind an open run.
        await ring.told((0, "started", "succeeded"), (1, "started", "succeeded"), *waiting[1:])
        await ring.at(4)
        await ring.began_at(0, 1, 4)
    found = await fetch_rows(
        ring.db, "select tick, state, reason from rota.ticks where run is not null"
    )
    assert sorted(found) == [(nth(n), "started", None) for n in (0, 1, 4)]


async def test_overlap_queue_one_waiting_tick_is_skipped_by_pause(bell: MakeBell) -> None:
    ring = await bell(overlap="queue_one")
    async with ring.app.worker():
        await ring.at(0)
        await ring.began_at(0)
        await ring.at(1)
        await ring.told((0, "started", None), (1, "queued", None))
        await ring.app.schedules.pause("ring")
        ring.go.set()
        await ring.told((0, "started", "succeeded"), (1, "skipped", None))
        await ring.app.schedules.resume("ring")
        await ring.at(2)
        await ring.began_at(0, 2)
    found = await fetch_rows(ring.db, "select reason from rota.ticks where state = 'skipped'")
    assert found == [("the schedule was paused",)]


async def test_overlap_cancel_running_cancels_open_run(bell: MakeBell) -> None:
    ring = await bell(overlap="cancel_running")
    async with ring.app.worker():
        for n in range(3):
            await ring.at(n)
            await ring.began_at(*range(n + 1))
        # Through a pooler, the worker receives the cancel request with its next heartbeat.
        cancelled = [(0, "started", "cancelled"), (1, "started", "cancelled")]
        await ring.told(*cancelled, (2, "started", None))
        ring.go.set()
        await ring.told(*cancelled, (2, "started", "succeeded"))
    assert ring.ended == [nth(2)]


async def test_overlap_allow_runs_concurrently(bell: MakeBell) -> None:
    ring = await bell(overlap="allow")
    async with ring.app.worker():
        for n in range(3):
            await ring.at(n)
            await ring.began_at(*range(n + 1))
        assert ring.ended == []
        ring.go.set()
        await ring.told(*((n, "started", "succeeded") for n in range(3)))


# Catch-up after an outage


@pytest.mark.parametrize(
    ("policy", "began"),
    [
        ({"catch_up": "none"}, []),
        ({"catch_up": "none", "grace": 400}, [100]),
        ({"catch_up": "latest"}, [100]),
        ({"catch_up": "latest", "grace": 200}, []),
        ({"catch_up": "all", "at_most": 3}, [98, 99, 100]),
        ({"catch_up": "all", "at_most": 5, "grace": 1000}, [99, 100]),
    ],
)
async def test_catch_up_after_outage_follows_policy(
    bell: MakeBell, policy: dict[str, Any], began: list[int]
) -> None:
    ring = await bell(overlap="allow", **policy)
    ring.go.set()
    async with ring.app.worker():
        await ring.at(0)
        await ring.began_at(0)
    await ring.at(100.5)  # five minutes after the last tick
    async with ring.app.worker():
        await eventually(ring.db, "select next from rota.schedules", [(nth(101),)])
        await ring.at(101)
        await ring.began_at(0, *began, 101)


async def test_catch_up_by_default_starts_only_latest_tick(bell: MakeBell) -> None:
    ring = await bell()
    ring.go.set()
    async with ring.app.worker():
        await ring.at(0)
        # Wait for the end of the run: a tick during an open run is skipped.
        await ring.told((0, "started", "succeeded"))
        await ring.at(MANY)
        await ring.told((0, "started", "succeeded"), (MANY, "started", "succeeded"))
        await ring.at(MANY + 1)
        await ring.began_at(0, MANY, MANY + 1)
    assert await fetch_rows(ring.db, "select ticks, runs, missed from rota.schedules") == [
        (3, 3, MANY - 1)
    ]


# End and pause


async def test_schedule_ends_after_max_runs_or_end_time(
    rota_harness: Harness, db: DB, short_sweep: None
) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    began: list[str] = []
    last_has_run = define_last(app, nth(10))

    @app.schedule(every=600, starts=NOON, max_runs=2, name="twice", input={"who": "twice"})
    @app.schedule(every=600, starts=NOON, ends=nth(2), name="until", input={"who": "until"})
    @app.task
    async def ring(who: str) -> None:
        began.append(who)

    await clock.set(nth(-1))
    async with app.worker():
        for n, many in ((0, 2), (1, 4), (2, 5)):
            await clock.set(nth(n))
            # Wait until the outcomes are recorded: a tick during an open run is skipped.
            await eventually(db, "select count(*) from rota.outcomes", [(many,)])
        await eventually(db, STATES, ENDED)
        await clock.set(nth(10))
        await asyncio.wait_for(last_has_run.wait(), 60)
    assert sorted(began) == ["twice", "twice", "until", "until", "until"]


STATES = "select name, state::text from rota.schedules where name <> 'last' order by 1"
ENDED = [("twice", "ended"), ("until", "ended")]


def define_last(app: Rota, at: datetime) -> asyncio.Event:
    """Define a one-time schedule whose run sets the event that is returned.

    The poll that fires it has fired all schedules that were due before.
    """
    has_run = asyncio.Event()

    @app.schedule(at=at, name="last")
    @app.task
    async def last() -> None:
        has_run.set()

    return has_run


@pytest.mark.usefixtures("short_sweep")
async def test_schedule_pauses_after_failures_in_a_row(rota_harness: Harness, db: DB) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    fails = True
    last_has_run = define_last(app, nth(5))

    @app.schedule(every=600, starts=NOON, pause_after=2)
    @app.task(retry=Retry(max_attempts=1))
    async def ring(ctx: Context) -> None:
        if fails:
            raise ValueError("no bell")

    await clock.set(nth(-1))
    async with app.worker():
        await clock.set(nth(0))
        await eventually(db, "select failures from rota.schedules" + OF_RING, [(1,)])
        await clock.set(nth(1))
        # The pause does not need another tick.
        await eventually(db, "select state::text, reason from rota.schedules" + OF_RING, [PAUSED])
        await clock.set(nth(5))
        await asyncio.wait_for(last_has_run.wait(), 60)
        ticks = "select count(*)::int from rota.ticks where schedule = 'ring'"
        assert await fetch_rows(db, ticks) == [(2,)]
        fails = False
        await app.schedules.resume("ring")
        await clock.set(nth(6))
        await eventually(
            db, "select failures, state::text from rota.schedules" + OF_RING, [(0, "active")]
        )
        await eventually(db, f"{ticks} and outcome = 'succeeded'", [(1,)])


OF_RING = " where name = 'ring'"
PAUSED = ("paused", "2 failures in a row")


@pytest.mark.usefixtures("short_sweep")
async def test_schedule_with_removed_run_starts_next_tick(
    rota_harness: Harness, db: DB, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, clock = rota_harness.app, rota_harness.clock

    @app.schedule(every=600, starts=NOON)
    @app.task
    async def ring() -> None: ...

    await clock.set(nth(-1))
    with monkeypatch.context() as blind:
        blind.setattr(scheduler.Scheduler, "_sweep", lambda self: asyncio.sleep(0.01))
        async with app.worker():
            await clock.set(nth(0))
            await rota_harness.wait_for_event(ScheduleTicked)
            await eventually(db, "select count(*)::int from rota.outcomes", [(1,)])
    await db.execute("delete from rota.outcomes")
    await db.execute("delete from rota.jobs")
    async with app.worker():
        await eventually(db, "select outcome, ended is null from rota.ticks", [(None, False)])
        await clock.set(nth(1))
        await eventually(db, "select count(*)::int from rota.ticks where state = 'started'", [(2,)])


async def test_jitter_starts_ticks_late_but_never_early(rota_app: Rota, db: DB) -> None:
    @rota_app.schedule(every=0.3, jitter=0.3, overlap="allow", catch_up="all")
    @rota_app.task
    async def ring() -> None: ...

    late = "select extract(epoch from at - tick)::float8 from rota.ticks where state = 'started'"
    async with rota_app.worker():
        async with asyncio.timeout(60):
            while len(found := await fetch_rows(db, late)) < 8:
                await asyncio.sleep(0.05)
    assert all(each >= 0 for [each] in found)
    assert max(each for [each] in found) > 0.05
    steps = "select tick - lag(tick) over (order by tick) from rota.ticks"
    assert {step for [step] in await fetch_rows(db, steps)} == {None, timedelta(seconds=0.3)}
