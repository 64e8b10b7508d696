"""Several sessions fire at once: each tick is started once, and no session waits for another.

A session stops between recording its ticks and advancing the schedule, until the other sessions have run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import FireResult, Overtaken
from rota.errors import DatabaseUnavailable
from rota.model.settings import Settings
from rota.store import ticks
from rota.store.database import Database
from rota.testing.proxy.connection import CutPoint
from rota.testing.proxy.proxy import Proxy
from support.schedule_firing import (
    ME,
    OTHER,
    TARGETS,
    fire,
    insert_schedule,
    recorded_ticks,
    row,
    runs,
)
from support.stage import Stage
from support.tick_safeguards import LAYERS, NO_KEY, disable_safeguards

MANY = 20


class Window:
    """Point before the advance of schedules: each process in `whom` stops there until `go` is set."""

    def __init__(self) -> None:
        self.there: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.go = asyncio.Event()
        self.whom: set[tuple[str, int]] = {ME}


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    window = Window()
    advance = scheduling_fire._FireTransaction._advance

    async def later(self: scheduling_fire._FireTransaction, plans: Any, started: Any) -> None:
        if self._process in window.whom:
            window.there.put_nowait(self._process)
            await window.go.wait()
        await advance(self, plans, started)

    monkeypatch.setattr(scheduling_fire._FireTransaction, "_advance", later)
    yield window
    window.go.set()


@asynccontextmanager
async def stopped(stage: Stage, window: Window) -> AsyncIterator[asyncio.Task[FireResult]]:
    """Fire, and stop at the window."""
    scheduling_fire = stage.meanwhile(fire(stage))
    async with asyncio.timeout(60):
        await window.there.get()
    yield scheduling_fire
    window.go.set()


async def test_fire_skips_schedules_locked_by_another_session(stage: Stage, window: Window) -> None:
    names = [f"s{n:02}" for n in range(MANY)]
    expected = {(name, await insert_schedule(stage, name)): 1 for name in names}
    async with stopped(stage, window) as first:
        async with asyncio.timeout(60):
            assert not (await fire(stage, who=OTHER)).handled
        late = await insert_schedule(stage, "late")
        async with asyncio.timeout(60):
            fired = await fire(stage, who=OTHER)
        assert list(fired.started) == [("late", late)]
    assert (await first).handled == MANY
    assert not (await fire(stage, who=OTHER)).handled
    assert await runs(stage) == {**expected, ("late", late): 1}


# Each of three safeguards prevents a second start of a tick

Without = Callable[[Sequence[str]], None]


@pytest.fixture
def without() -> Iterator[Without]:
    """Return a function that disables safeguards until the end of the test."""
    with ExitStack() as stack:

        def take(layers: Sequence[str]) -> None:
            stack.callback(disable_safeguards(layers))

        yield take


async def two_at_once(stage: Stage, window: Window) -> list[FireResult | BaseException]:
    """Let both sessions read the due ticks before either advances.

    A session that cannot get that far ends early, or waits for a lock of the other one.
    """
    window.whom = {ME, OTHER}
    both = [stage.meanwhile(fire(stage, who=who)) for who in (ME, OTHER)]
    for _ in both:
        arriving = asyncio.ensure_future(window.there.get())
        async with asyncio.timeout(60):
            while not (arriving.done() or any(each.done() for each in both)):
                if await stage.one(WAITING):
                    break
                await asyncio.sleep(0.01)
        arriving.cancel()
    window.go.set()
    return await asyncio.gather(*both, return_exceptions=True)


@pytest.mark.parametrize("kept", LAYERS)
async def test_fire_any_single_safeguard_prevents_second_start(
    own_stage: Stage, window: Window, without: Without, kept: str
) -> None:
    tick = await insert_schedule(own_stage)
    taken = [layer for layer in LAYERS if layer != kept]
    without(taken)
    if "key" in taken:
        await own_stage.sql(NO_KEY)

    answers = await two_at_once(own_stage, window)

    assert await runs(own_stage) == {("beat", tick): 1}
    if kept == "compare":
        assert [type(each) for each in answers if isinstance(each, Exception)] == [Overtaken]


async def test_fire_without_safeguards_starts_tick_twice(
    own_stage: Stage, window: Window, without: Without
) -> None:
    """Shows that the test above detects a second start."""
    tick = await insert_schedule(own_stage)
    without(list(LAYERS))
    await own_stage.sql(NO_KEY)
    await two_at_once(own_stage, window)
    assert await runs(own_stage) == {("beat", tick): 2}


# Slow reads

SLOW = """
create or replace function rota.clock() returns timestamptz language plpgsql stable as
$$ begin
     if current_setting('application_name') = 'slow' then perform pg_advisory_xact_lock(77); end if;
     return statement_timestamp();
   end $$
"""


async def test_fire_run_started_while_reading_counts_as_open(own_stage: Stage) -> None:
    """Between the start of the statement and its lock, another session fires, and the next tick is due.
    The rest of the statement's snapshot is older than the row it has locked."""
    stage = own_stage
    tick = await insert_schedule(stage, every=0.5, late=timedelta(seconds=0.7))
    await stage.sql(SLOW)
    slow = await stage.connect(engine=True)
    await stage.run(
        ticks.lock_due(["work"]), slow
    )  # planned before, so that only the execution is slow
    await stage.sql("set application_name = slow", on=slow)
    await stage.sql("set lock_timeout = 0", on=slow)
    gate = await stage.connect()
    async with slow.transaction():
        async with gate.transaction():
            await stage.sql("select pg_advisory_xact_lock(77)", on=gate)
            reading = stage.meanwhile(stage.run(ticks.lock_due(["work"]), slow))
            await stage.waits(slow, gate)
            run = await stage.start()
            following = tick + timedelta(seconds=0.5)
            await stage.sql(
                "update rota.schedules set next = %s, due = %s, run = %s", following, following, run
            )
        [due] = await reading
        assert (due.next, due.run) == (following, run)
        [standing] = await stage.run(ticks.record_outcomes(["beat"]), slow)
        assert standing.open_runs == [run]


# Clocks


async def test_fire_clock_set_back_and_forward_starts_ticks_once(
    own_stage: Stage,
) -> None:
    stage = own_stage
    tick = await insert_schedule(stage, every=10.0, overlap="allow", catch_up="all")

    async def at(now: datetime) -> dict[Any, int]:
        await stage.sql(
            "create or replace function rota.clock() returns timestamptz language sql stable"
            f" as $$ select timestamptz '{now.isoformat()}' $$"
        )
        before = await runs(stage)
        await fire(stage)
        return dict(await runs(stage) - before)

    def nth(n: float) -> datetime:
        return tick + timedelta(seconds=10 * n)

    def ran(*which: int) -> dict[Any, int]:
        return {("beat", nth(n)): 1 for n in which}

    hour = timedelta(hours=1)
    assert await at(nth(1.5)) == ran(0, 1)
    assert await at(nth(1.5) - hour) == {}
    assert await at(nth(1.5)) == {}
    assert await at(nth(2) - timedelta(microseconds=1)) == {}
    assert await at(nth(2)) == ran(2)
    assert await at(nth(2) - hour) == {}
    # After a step forward the missed ticks are made up; later ticks start when they are due.
    assert await at(nth(7)) == ran(3, 4, 5, 6, 7)
    assert await at(nth(7) - hour) == {}
    assert await at(nth(7.99)) == {}
    assert await at(nth(8)) == ran(8)
    assert await at(nth(9.99)) == ran(9)


# Lost answers


@pytest.mark.parametrize("where", ["before", "sent", "answered", "late"])
async def test_fire_with_lost_commit_answer_starts_ticks_once(
    stage: Stage, direct_dsn: str, where: CutPoint
) -> None:
    expected = {(f"s{n}", await insert_schedule(stage, f"s{n}")): 1 for n in range(5)}
    with Proxy(stage.dsn) as proxy:
        database = Database(proxy.dsn, Settings())
        try:
            proxy.cut(where, hold_seconds=0.3)
            with pytest.raises(DatabaseUnavailable):
                await scheduling_fire.fire(database, TARGETS, ME, DeferredSchedules())
            # The session retries at once, and so does another one.
            [mine, yours] = await asyncio.gather(
                scheduling_fire.fire(database, TARGETS, ME, DeferredSchedules()),
                fire(stage, who=OTHER),
            )
            [cut] = proxy.wait_for_cuts()
        finally:
            await database.close()
    again = len(mine.started) + len(yours.started)
    if where == "answered":
        assert (again, cut.committed) == (0, True)
    async with asyncio.timeout(60):
        while await runs(stage) != expected:
            await fire(stage)
            await asyncio.sleep(0.05)
    assert not (await fire(stage)).started


# Frozen sessions


async def test_fire_frozen_session_does_not_block_another(stage: Stage, window: Window) -> None:
    """The server ends the frozen transaction, another session fires, and the first one finds its own
    rolled back."""
    tick = await insert_schedule(stage)
    async with stopped(stage, window) as frozen:
        async with asyncio.timeout(60):
            while not (fired := await fire(stage, who=OTHER)).handled:
                await asyncio.sleep(0.05)
        assert list(fired.started) == [("beat", tick)]
        window.go.set()
        with pytest.raises(DatabaseUnavailable):
            await frozen
    assert await runs(stage) == {("beat", tick): 1}
    assert await recorded_ticks(stage) == [(tick, "started", None)]
    assert await row(stage, "ticks, runs") == (1, 1)


# Policies hold across instances


async def test_fire_max_runs_holds_across_processes(stage: Stage) -> None:
    await insert_schedule(
        stage, every=0.1, overlap="allow", catch_up="all", max_runs=7, late=timedelta(0)
    )

    async def go_on(who: tuple[str, int]) -> None:
        for _ in range(25):
            await fire(stage, who=who)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(go_on(("host", pid)) for pid in range(4)))
    found = await runs(stage)
    assert len(found) == 7
    assert set(found.values()) == {1}
    assert await row(stage, "runs, state::text") == (7, "ended")


async def test_schedule_deleted_while_firing_leaves_no_ticks(stage: Stage, window: Window) -> None:
    from rota.engine.scheduling import definitions

    await insert_schedule(stage)
    async with stopped(stage, window) as first:
        deleting = stage.meanwhile(definitions.delete(stage.database, "beat"))
        async with asyncio.timeout(60):
            while not await stage.one(WAITING):
                await asyncio.sleep(0.01)
    await asyncio.gather(first, deleting)
    assert await stage.sql("select * from rota.ticks") == []
    assert len(await runs(stage)) == 1


WAITING = """
select exists (select from pg_stat_activity
                where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0)
"""
