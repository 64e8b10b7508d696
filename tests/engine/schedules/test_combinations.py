"""Combinations of operations on one schedule. The test sets the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Unpack
from zoneinfo import ZoneInfo

import pytest
from psycopg import AsyncConnection

from rota import ArgumentError, Context, Retry, Rota
from rota.app.schedule_decorator import define_schedule
from rota.app.schedule_targets import run_factories
from rota.engine.scheduling import definitions
from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.fire import FireResult
from rota.model.schedule_options import ScheduleChanges
from rota.testing import Harness

DB = AsyncConnection[tuple[Any, ...]]
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
PARIS = ZoneInfo("Europe/Paris")
NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
async def app(rota_harness: Harness) -> Rota:
    app = rota_harness.app

    @app.task
    async def report(ctx: Context, flag: bool | int = False) -> None: ...

    @app.task(retry=Retry(max_attempts=1))
    async def fails(ctx: Context) -> None:
        raise ValueError("no")

    await rota_harness.clock.set(NOON)
    return app


async def fire(app: Rota) -> FireResult:
    """Fire the due schedules as a worker would, without a worker."""
    client = await app.open()
    return await scheduling_fire.fire(
        client.database, run_factories(app), ("here", 1), DeferredSchedules()
    )


async def tick_states(app: Rota, name: str = "x") -> list[tuple[datetime, str, str | None]]:
    found = await app.schedules.ticks(name)
    return sorted((each.planned, each.state, each.reason) for each in found)


# A tick that waits for the previous run


async def test_queue_one_backfilled_tick_has_one_run(
    app: Rota, rota_harness: Harness, db: DB
) -> None:
    await app.schedules.create("x", "report", every=HOUR, overlap="queue_one")
    await app.schedules.trigger("x")
    await rota_harness.clock.advance(2 * HOUR + MINUTE)
    assert len(await app.schedules.backfill("x", NOON, NOON + 2 * HOUR + MINUTE)) == 2
    await fire(app)
    for _ in range(2):
        await rota_harness.run_until_idle()
        await rota_harness.clock.advance(MINUTE)

    many = "select count(*)::int from rota.jobs group by options ->> 'tick'"
    assert await (await db.execute(many)).fetchall() == [(1,), (1,), (1,)]


async def test_queue_one_waiting_tick_starts_after_schedule_end(
    app: Rota, rota_harness: Harness
) -> None:
    await app.schedules.create("x", "report", every=HOUR, overlap="queue_one")
    run = await app.schedules.trigger("x")
    await rota_harness.clock.advance(HOUR + MINUTE)
    await fire(app)
    assert (NOON + HOUR, "queued", "the run before it has not ended") in await tick_states(app)

    await app.schedules.update("x", ends=NOON + HOUR + MINUTE)
    assert (await app.schedules.get("x")).state == "active"
    await run.cancel()
    await rota_harness.clock.advance(MINUTE)
    await fire(app)

    assert (NOON + HOUR, "started", None) in await tick_states(app)
    assert (await app.schedules.get("x")).state == "ended"


async def test_queue_one_waiting_tick_is_skipped_by_automatic_pause(
    app: Rota, rota_harness: Harness
) -> None:
    clock = rota_harness.clock
    await app.schedules.create("x", "fails", every=HOUR, overlap="queue_one", pause_after=1)
    for _ in range(2):
        await clock.advance(HOUR)
        await fire(app)
    await rota_harness.run_until_idle()
    await clock.advance(MINUTE)
    await fire(app)
    assert (await app.schedules.get("x")).state == "paused"
    skipped = (NOON + 2 * HOUR, "skipped", "the schedule was paused")
    assert await tick_states(app) == [(NOON + HOUR, "started", None), skipped]

    await clock.advance(7 * 24 * HOUR)
    await app.schedules.resume("x")
    assert not (await fire(app)).handled
    await clock.advance(HOUR)
    [(_, tick)] = (await fire(app)).started
    assert tick == NOON + (7 * 24 + 3) * HOUR
    assert skipped in await tick_states(app)


# Triggered and backfilled runs


async def test_trigger_cancelled_does_not_hide_open_scheduled_run(
    app: Rota, rota_harness: Harness
) -> None:
    await app.schedules.create("x", "report", every=HOUR)
    await rota_harness.clock.advance(HOUR)
    await fire(app)
    run = await app.schedules.trigger("x")
    await run.cancel()
    await rota_harness.clock.advance(HOUR)
    assert not (await fire(app)).started
    assert (NOON + 2 * HOUR, "skipped", "the run before it has not ended") in await tick_states(app)


async def test_backfill_failures_do_not_pause_schedule(app: Rota, rota_harness: Harness) -> None:
    await app.schedules.create("x", "fails", cron="0 * * * *", pause_after=3)
    await app.schedules.backfill("x", NOON - 5 * HOUR, NOON)
    for _ in range(2):
        await rota_harness.run_until_idle()
        await rota_harness.clock.advance(HOUR)
    await fire(app)
    seen = await app.schedules.get("x")
    assert (seen.state, seen.runs, seen.failures) == ("active", 2, 1)


async def test_schedule_ended_by_max_runs_stays_ended_with_new_times(
    app: Rota, rota_harness: Harness
) -> None:
    await app.schedules.create("x", "report", every=HOUR, max_runs=1)
    await rota_harness.clock.advance(HOUR)
    await fire(app)
    await app.schedules.update("x", cron="0 * * * *")
    assert (await app.schedules.get("x")).state == "ended"
    await app.schedules.update("x", max_runs=2)
    assert (await app.schedules.get("x")).next == [NOON + 2 * HOUR]
    await app.schedules.update("x", max_runs=1)
    assert (await app.schedules.get("x")).state == "ended"
    await app.schedules.update("x", max_runs=2)
    await app.schedules.pause("x")
    await app.schedules.update("x", max_runs=1)
    with pytest.raises(ArgumentError, match="has ended: nothing comes after it"):
        await app.schedules.resume("x")


# Equal and changed declarations


async def declare(app: Rota, **how: Unpack[ScheduleChanges]) -> None:
    client = await app.open()
    definition = define_schedule("x", "task", "report", how, declared=True)
    await definitions.declare(client.database, [definition], ["report"])


async def test_declare_input_one_and_true_differ(app: Rota, db: DB) -> None:
    await declare(app, every=5, input={"flag": 1})
    await declare(app, every=5, input={"flag": True})
    found = await (await db.execute("select input::text from rota.schedules")).fetchall()
    assert found == [('{"flag":true}',)]


async def test_declare_start_in_repeated_hour_is_unchanged_on_redeploy(
    app: Rota, rota_harness: Harness
) -> None:
    """Otherwise every deploy would skip the due ticks."""
    starts = datetime(2025, 10, 26, 2, 30, tzinfo=PARIS)
    await declare(app, cron="0 * * * *", starts=starts)
    await rota_harness.clock.advance(HOUR + MINUTE)
    await declare(app, cron="0 * * * *", starts=starts)
    assert list((await fire(app)).started) == [("x", NOON + HOUR)]


# Refused values


FAR = datetime(9999, 12, 31, 23, 59, tzinfo=NEW_YORK)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"every": 5, "ends": FAR}, "ends=9999-12-31 .* is outside the years 1 to 9999"),
        ({"at": FAR}, "at=9999-12-31 .* is outside the years"),
        ({"every": 5, "jitter": None}, "jitter is a number of seconds"),
        ({"every": 5, "at_most": None}, "at_most is a whole number from 1 to 1,000, not None"),
        ({"every": 5, "at_most": 1001}, "at_most is a whole number from 1 to 1,000, not 1001"),
        ({"every": 5, "max_runs": 2**63}, "max_runs is a whole number from 1 to 1,000,000,000"),
        ({"every": 5, "pause_after": 2**31}, "pause_after is a whole number from 1 to"),
        ({"every": 5, "max_runs": 1.5}, "max_runs is a whole number .* not 1.5"),
        ({"every": 5, "max_runs": True}, "max_runs is a whole number .* not True"),
        ({"every": "5m"}, "every is a number of seconds or a timedelta, not '5m'"),
        ({"every": 5, "grace": "5m"}, "grace is a number of seconds or a timedelta, not '5m'"),
        ({"at": "2027-01-01"}, "at is a time, such as .* not '2027-01-01'"),
        ({"every": 5, "starts": "2027"}, "starts is a time, such as .* not '2027'"),
        ({"every": 5, "ends": datetime(2027, 1, 1)}, "ends=2027-01-01 .* has no time zone"),  # noqa: DTZ001
    ],
)
async def test_schedule_invalid_option_is_refused_by_name(
    app: Rota, how: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        await app.schedules.create("x", "report", **how)
    await app.schedules.create("x", "report", every=5)
    with pytest.raises(ArgumentError, match=said):
        await app.schedules.update("x", **how)
    assert [each.name for each in await app.schedules.list()] == ["x"]


async def test_schedule_without_any_tick_is_refused_with_reason(app: Rota) -> None:
    late = datetime(9999, 6, 1, tzinfo=UTC)
    with pytest.raises(ArgumentError, match="there is no such time after its start"):
        await app.schedules.create("x", "report", cron="0 0 1 1 *", starts=late)
    with pytest.raises(ArgumentError, match="it ends before its first tick"):
        await app.schedules.create("x", "report", every=5, ends=NOON)


async def test_schedule_list_unknown_state_is_refused(app: Rota) -> None:
    with pytest.raises(ArgumentError, match=r"state is one of active, paused, .* not 'nope'"):
        await app.schedules.list(state="nope")
