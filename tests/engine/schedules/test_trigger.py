"""Trigger: a run that an operator starts now, in addition to the scheduled runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from rota import ArgumentError, Context, Rota
from rota.testing import Harness
from support.schedule_fixtures import Seen

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


async def test_trigger_starts_run_beside_scheduled_runs(
    app: Rota, rota_harness: Harness, seen: Seen
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR, input={"day": "friday"}, max_runs=1)
    await rota_harness.clock.advance(MINUTE)

    run = await app.schedules.trigger("x")
    await rota_harness.run_until_idle()

    assert await run.result() == "friday"
    assert seen == [("friday", NOON + MINUTE, False)]
    [tick] = await app.schedules.ticks("x")
    assert (tick.run, tick.reason, tick.backfilled) == (run.id, "by hand", False)
    # A triggered run does not count towards `max_runs`.
    assert (await app.schedules.get("x")).next == [NOON + HOUR]
    assert (await app.schedules.get("x")).last == tick


async def test_trigger_of_paused_schedule_starts_runs(
    app: Rota, rota_harness: Harness, seen: Seen
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "etl", at=NOON + HOUR, input={"day": "friday"})
    await app.schedules.pause("x")
    await app.schedules.trigger("x")
    await app.schedules.trigger("x")
    await rota_harness.run_until_idle()

    assert len(seen) == 4
    assert {tick for _, tick, _ in seen} == {NOON, NOON + timedelta(microseconds=1)}


async def test_trigger_at_time_of_tick_starts_second_run(
    app: Rota, rota_harness: Harness, seen: Seen
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR, overlap="allow")
    await rota_harness.clock.advance(HOUR)

    await app.schedules.trigger("x")
    await rota_harness.run_until_idle()

    assert sorted(tick for _, tick, _ in seen if tick) == [
        NOON + HOUR,
        NOON + HOUR + timedelta(microseconds=1),
    ]


async def test_trigger_with_open_run_makes_next_tick_skip(app: Rota, rota_harness: Harness) -> None:
    held = asyncio.Event()

    @app.task
    async def slow() -> None:
        await held.wait()

    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", slow, every=HOUR)
    async with app.worker():
        await app.schedules.trigger("x")
        await rota_harness.clock.advance(HOUR)
        async with asyncio.timeout(60):
            while len(await app.schedules.ticks("x")) < 2:
                await asyncio.sleep(0.02)
        held.set()

    assert [each.state for each in await app.schedules.ticks("x")] == ["skipped", "started"]


async def test_trigger_during_ticks_loses_and_repeats_no_run(
    rota_app: Rota,
) -> None:
    ran: Counter[datetime | None] = Counter()

    @rota_app.schedule(every=0.1, overlap="allow", catch_up="all", at_most=1000)
    @rota_app.task
    async def beat(ctx: Context) -> None:
        ran[ctx.scheduled_for] += 1

    async def triggering() -> list[int]:
        return [(await rota_app.schedules.trigger("beat")).id for _ in range(20)]

    async with rota_app.worker():
        runs = await asyncio.gather(triggering(), triggering(), triggering())
        async with asyncio.timeout(60):
            while len(ran) < 75:
                await asyncio.sleep(0.02)
    ticks = await rota_app.schedules.ticks("beat", 1000)

    assert len({id for some in runs for id in some}) == 60
    assert set(ran.values()) == {1}
    assert len([each for each in ticks if each.reason == "by hand"]) == 60
    by_the_clock = sorted(each.planned for each in ticks if each.reason is None)
    steps = {b - a for a, b in pairwise(by_the_clock)}
    assert steps == {timedelta(seconds=0.1)}


async def test_trigger_without_code_of_target_is_refused(rota_dsn: str, app: Rota) -> None:
    await app.schedules.create("x", "report", every=HOUR)
    await app.schedules.create("y", action="nobody", every=HOUR)

    async with Rota(rota_dsn) as other:
        with pytest.raises(ArgumentError, match="this app has no task called 'report'"):
            await other.schedules.trigger("x")
        with pytest.raises(ArgumentError, match="this app does not know action 'nobody'"):
            await other.schedules.trigger("y")
    assert await app.schedules.ticks("x") == []
