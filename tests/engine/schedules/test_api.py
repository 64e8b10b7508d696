"""`app.schedules`: create, update, pause, resume, delete and list schedules. The test sets the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rota import ArgumentError, Context, Rota
from rota.errors import DefinitionError, ScheduleNotFound
from rota.testing import Harness

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def define_tasks(app: Rota) -> Rota:
    @app.task
    async def report(ctx: Context, day: str = "today", pages: int = 1) -> str:
        if day == "broken":
            raise ValueError("no such day")
        return f"{day} {ctx.scheduled_for}"

    flow = app.flow("etl")

    @flow.task
    async def extract(day: str) -> None: ...

    return app


@pytest.fixture
def app(rota_harness: Harness) -> Rota:
    return define_tasks(rota_harness.app)


async def test_schedule_get_returns_all_created_fields(app: Rota, rota_harness: Harness) -> None:
    await rota_harness.clock.set(NOON)

    await app.schedules.create(
        "morning",
        "report",
        cron="0 7 * * mon-fri",
        tz="Europe/Paris",
        input={"day": "monday"},
        tenant="acme",
        overlap="queue_one",
        catch_up="all",
        at_most=7,
        grace=timedelta(minutes=5),
        jitter=2,
        ends=NOON + 100 * HOUR,
        max_runs=9,
        pause_after=3,
        queue="slow",
    )
    seen = await app.schedules.get("morning")

    assert (seen.name, seen.kind, seen.target, seen.declared) == (
        "morning",
        "task",
        "report",
        False,
    )
    assert (seen.input, seen.tenant, seen.queue) == ({"day": "monday"}, "acme", "slow")
    assert (seen.cron, seen.tz, seen.when) == (
        "0 7 * * mon-fri",
        "Europe/Paris",
        "0 7 * * mon-fri (Europe/Paris)",
    )
    assert (seen.overlap, seen.catch_up, seen.at_most) == ("queue_one", "all", 7)
    assert (seen.grace, seen.jitter, seen.pause_after, seen.max_runs) == (300, 2, 3, 9)
    assert (seen.state, seen.reason, seen.created) == ("active", None, NOON)
    assert (seen.last, seen.last_success, seen.last_failure) == (None, None, None)
    assert (seen.failures, seen.runs, seen.missed, seen.has_worker) == (0, 0, 0, False)
    paris = ZoneInfo("Europe/Paris")
    assert seen.next == [datetime(2026, 3, day, 7, tzinfo=paris) for day in (3, 4, 5, 6)]


async def test_schedule_next_ticks_are_limited_by_max_runs_and_to_five(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("few", "report", every=60, max_runs=2)
    await app.schedules.create("many", "report", every=60)
    await app.schedules.create("once", "report", at=NOON + HOUR)

    assert (await app.schedules.get("few")).next == [NOON + HOUR / 60, NOON + HOUR / 30]
    assert len((await app.schedules.get("many")).next) == 5
    assert (await app.schedules.get("once")).next == [NOON + HOUR]


async def test_schedule_after_tick_reports_tick_and_run(app: Rota, rota_harness: Harness) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("hourly", "report", every=HOUR)
    now = await rota_harness.clock.advance(HOUR + timedelta(seconds=3))

    await rota_harness.run_until_idle()
    [tick] = await app.schedules.ticks("hourly")

    assert (tick.planned, tick.started, tick.late_seconds) == (NOON + HOUR, now, 3)
    assert (tick.state, tick.outcome, tick.seconds) == ("started", "succeeded", 0)
    assert tick.pid > 0
    assert tick.host
    assert tick.run is not None
    assert await app.run(tick.run).result() == f"today {NOON + HOUR}"

    seen = await app.schedules.get("hourly")
    assert seen.last == tick
    assert (seen.runs, seen.next[0]) == (1, NOON + 2 * HOUR)


async def test_schedule_failures_in_a_row_are_counted(app: Rota, rota_harness: Harness) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("bad", "report", every=HOUR, input={"day": "broken"})
    for _ in range(2):
        await rota_harness.clock.advance(HOUR)
        for _ in range(3):  # three attempts
            await rota_harness.run_until_idle()
            await rota_harness.clock.advance(timedelta(minutes=1))
    await rota_harness.clock.advance(HOUR)
    await rota_harness.run_until_idle()

    seen = await app.schedules.get("bad")

    assert seen.failures == 2
    assert seen.last_success is None
    assert seen.last_failure is not None


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, "starts a task or flow, or runs an action"),
        ({"task": "report", "action": "x", "every": 1}, "or runs an action"),
        ({"task": "raport", "every": 1}, "no task and no flow called 'raport'"),
        ({"task": "report"}, "pass one of a cron"),
        ({"task": "report", "every": 1, "cron": "@daily"}, "pass one of a cron"),
        ({"task": "report", "cron": "0 25 * * *"}, "hour"),
        ({"task": "report", "cron": "0 0 30 2 *"}, "never comes"),
        ({"task": "report", "cron": "@daily", "tz": "Mars/Olympus"}, "Mars/Olympus"),
        ({"task": "report", "every": 1, "input": {"dey": "x"}}, "takes no argument 'dey'"),
        ({"task": "report", "every": 1, "input": {"pages": "x"}}, "Expected `int`"),
        ({"task": "report", "every": 1, "input": {"day": "\0"}}, "NUL"),
        ({"task": "etl", "every": 1}, "day"),
        ({"task": "etl", "every": 1, "input": {"day": "x"}, "queue": "q"}, "queue of its own"),
        ({"task": "report", "every": 1, "config": {}}, "config is an action's"),
        ({"action": "x", "every": 1, "input": {}}, "an action has config"),
        ({"task": "report", "every": 1, "overlap": "skipp"}, "overlap is one of"),
        ({"task": "report", "every": 1, "name": ""}, "1 to 200"),
        ({"task": "report", "at": NOON.replace(tzinfo=None)}, "no time zone"),
        ({"task": "report", "every": 1, "queue": "a b"}, "queue's name"),
    ],
)
async def test_schedule_create_invalid_argument_is_refused_offline(
    said: Mapping[str, Any], reason: str
) -> None:
    app = define_tasks(Rota("postgresql://nobody.invalid/nothing"))

    with pytest.raises((ArgumentError, DefinitionError), match=reason):
        await app.schedules.create(**{"name": "x", **said})


async def test_schedule_create_without_future_tick_is_refused(app: Rota) -> None:
    with pytest.raises(ArgumentError, match="would never come: it ends before its first tick"):
        await app.schedules.create("x", "report", cron="@daily", ends=NOON - HOUR)

    assert await app.schedules.list() == []


async def test_schedule_create_existing_name_is_refused(app: Rota) -> None:
    await app.schedules.create("x", "report", every=60)

    with pytest.raises(ArgumentError, match="already; change it with update"):
        await app.schedules.create("x", "report", every=61)

    assert (await app.schedules.get("x")).every == 60


async def test_schedule_operations_unknown_name_raise_not_found(app: Rota) -> None:
    schedules = app.schedules
    for asked in (
        schedules.get("x"),
        schedules.ticks("x"),
        schedules.pause("x"),
        schedules.resume("x"),
        schedules.delete("x"),
        schedules.trigger("x"),
        schedules.update("x", every=1),
        schedules.backfill("x", NOON, NOON),
    ):
        with pytest.raises(ScheduleNotFound, match="no schedule called 'x'; `rota schedules`"):
            await asked


# Updates


async def test_schedule_update_moves_next_tick_only_for_new_times(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR)
    await rota_harness.clock.advance(timedelta(minutes=10))

    await app.schedules.update("x", input={"day": "friday"})
    assert (await app.schedules.get("x")).next[0] == NOON + HOUR

    await app.schedules.update("x", ends=NOON + 2 * HOUR)
    assert (await app.schedules.get("x")).next == [NOON + HOUR, NOON + 2 * HOUR]

    await app.schedules.update("x", cron="30 * * * *", ends=None)
    seen = await app.schedules.get("x")
    assert (seen.every, seen.cron, seen.next[0]) == (None, "30 * * * *", NOON + HOUR / 2)
    assert seen.input == {"day": "friday"}


async def test_schedule_update_of_input_keeps_due_tick(app: Rota, rota_harness: Harness) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR)
    await rota_harness.clock.advance(HOUR)

    await app.schedules.update("x", input={"day": "friday"}, pause_after=2)
    await rota_harness.run_until_idle()

    [tick] = await app.schedules.ticks("x")
    assert tick.planned == NOON + HOUR
    assert await app.run(tick.run or 0).result() == f"friday {NOON + HOUR}"


async def test_schedule_update_invalid_change_changes_nothing(app: Rota) -> None:
    await app.schedules.create("x", "report", every=60, input={"day": "friday"})
    before = await app.schedules.get("x")

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input": {"dey": "x"}}, "takes no argument 'dey'"),
        ({"input": {"pages": float("nan")}}, "nan is not a number"),
        ({"overlap": "skipp"}, "overlap is one of"),
        ({"at_most": 0}, "at_most"),
        ({"cron": "* * *"}, "cron"),
        ({"tz": "Nowhere"}, "Nowhere"),
        ({"cron": None, "every": None}, "pass one of a cron"),
        ({"config": {}}, "config is an action's"),
        ({"input": {}, "config": {}}, "are the same field"),
    ]
    for changes, reason in wrong:
        with pytest.raises(ArgumentError, match=reason):
            await app.schedules.update("x", **changes)
    misspelled: dict[str, Any] = {"inputs": {}}
    with pytest.raises(TypeError, match="takes no option 'inputs'; did you mean 'input'"):
        await app.schedules.update("x", **misspelled)

    assert await app.schedules.get("x") == before


async def test_schedule_ended_becomes_active_with_higher_max_runs(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR, max_runs=1)
    await rota_harness.clock.advance(HOUR)
    await rota_harness.run_until_idle()
    assert (await app.schedules.get("x")).state == "ended"

    await app.schedules.update("x", input={"day": "friday"})
    assert (await app.schedules.get("x")).state == "ended"

    await app.schedules.update("x", max_runs=2)
    seen = await app.schedules.get("x")
    assert (seen.state, seen.next) == ("active", [NOON + 2 * HOUR])

    await app.schedules.update("x", ends=NOON + HOUR)
    assert (await app.schedules.get("x")).state == "ended"


async def test_schedule_created_at_run_time_wakes_idle_worker(rota_app: Rota) -> None:
    ran = asyncio.Event()

    @rota_app.task
    async def soon() -> None:
        ran.set()

    async with rota_app.worker():
        await rota_app.schedules.create("x", soon, every=0.1)
        async with asyncio.timeout(60):
            await ran.wait()
