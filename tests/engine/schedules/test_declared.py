"""Schedules declared in code: any number of workers declare them at the same time when they start."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from rota import ArgumentError, Context, Rota
from rota.app.worker_entry import declare_schedules
from rota.engine.scheduling import scheduler
from rota.engine.scheduling.definitions import declare
from rota.engine.worker.worker import Worker
from rota.errors import DefinitionError
from rota.store.database import _SESSION_SETTINGS, Database
from rota.testing import Harness
from support.queries import fetch

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)

Define = Callable[[Rota], None]


async def deploy(dsn: str, define: Define) -> None:
    """Declare the schedules of this code, as a worker does when it starts."""
    async with Rota(dsn, connections=2) as app:
        define(app)
        await declare_schedules(app, await app.open())


def report(app: Rota, *schedules: dict[str, Any]) -> None:
    @app.task
    async def report(day: str = "today") -> None: ...

    for each in schedules:
        app.schedule(**each)(report)


def code(*schedules: dict[str, Any]) -> Define:
    return lambda app: report(app, *schedules)


HOURLY = {"every": HOUR, "name": "hourly"}
DAILY = {"cron": "0 7 * * *", "tz": "Europe/Paris", "name": "daily"}


async def test_declared_task_and_flow_start_by_clock_with_input(
    rota_harness: Harness,
) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    seen: list[tuple[str, datetime | None]] = []
    flow = app.flow("etl")

    @flow.task
    async def extract(ctx: Context, day: str) -> None:
        seen.append((f"etl {day}", ctx.scheduled_for))

    @app.schedule(every=HOUR, input={"day": "monday"})
    @app.schedule("30 * * * *", name="half past", input={"day": "tuesday"})
    @app.task
    async def report(ctx: Context, day: str) -> None:
        seen.append((day, ctx.scheduled_for))

    app.schedule(every=HOUR, input={"day": "friday"})(flow)
    await clock.set(NOON)
    await rota_harness.run_until_idle()
    assert seen == []
    await clock.advance(HOUR)
    await rota_harness.run_until_idle()

    assert sorted(seen, key=str) == [
        ("etl friday", NOON + HOUR),
        ("monday", NOON + HOUR),
        ("tuesday", NOON + HOUR / 2),
    ]


async def test_declare_by_32_workers_creates_each_schedule_once(
    rota_dsn: str, rota_app: Rota
) -> None:
    def define(app: Rota) -> None:
        report(app, *({"every": 60, "name": f"s{number}"} for number in range(20)))

    await asyncio.gather(*(deploy(rota_dsn, define) for _ in range(32)))

    found = await rota_app.schedules.list()
    assert [each.name for each in found] == sorted(f"s{number}" for number in range(20))
    assert {each.state for each in found} == {"active"}


async def test_declare_by_old_and_new_code_at_once_keeps_one_version(
    rota_dsn: str, rota_app: Rota
) -> None:
    """Each version has ten own schedules, which the other disables, and ten with another interval."""

    def define(version: int) -> Define:
        both = ({"every": 60 + version, "name": f"both{number}"} for number in range(10))
        own = ({"every": 60, "name": f"v{version}-{number}"} for number in range(10))
        return code(*both, *own)

    await deploy(rota_dsn, define(0))
    await asyncio.gather(*(deploy(rota_dsn, define(number % 2)) for number in range(24)))

    found = {each.name: each for each in await rota_app.schedules.list()}
    assert len(found) == 30
    assert {found[f"both{number}"].every for number in range(10)} in ({60}, {61})
    for version in (0, 1):
        states = {found[f"v{version}-{number}"].state for number in range(10)}
        assert states in ({"active"}, {"disabled"})


async def test_declare_removed_schedule_is_disabled_until_declared_again(
    rota_dsn: str, rota_harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    app = rota_harness.app
    await rota_harness.clock.set(NOON)
    await deploy(rota_dsn, code(HOURLY, DAILY))
    with caplog.at_level(logging.INFO, "rota"):
        await deploy(rota_dsn, code(DAILY))
    seen = await app.schedules.get("hourly")
    assert (seen.state, seen.reason) == ("disabled", "the code does not declare it any more")
    assert seen.next == []
    assert (await app.schedules.get("daily")).state == "active"
    assert "schedule 'hourly' is disabled" in caplog.text
    with pytest.raises(ArgumentError, match="declare it again"):
        await app.schedules.resume("hourly")

    await rota_harness.clock.advance(10 * HOUR)
    await deploy(rota_dsn, code(HOURLY, DAILY))

    seen = await app.schedules.get("hourly")
    assert (seen.state, seen.reason) == ("active", None)
    assert seen.next[0] == NOON + 11 * HOUR  # the ticks of the disabled time are skipped


def shorten_declare_interval(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let workers repeat their declarations after `seconds` instead of a minute."""
    for name in ("FIRST_DECLARE_SECONDS", "DECLARE_SECONDS"):
        monkeypatch.setattr(scheduler, name, seconds)


async def until(app: Rota, name: str, **wanted: object) -> None:
    async with asyncio.timeout(60):
        while True:
            seen = await app.schedules.get(name)
            if all(getattr(seen, each) == value for each, value in wanted.items()):
                return
            await asyncio.sleep(0.02)


async def test_declare_by_abandoned_deploy_is_reverted(
    rota_dsn: str, rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case of a deploy that is abandoned after its first instance."""
    shorten_declare_interval(monkeypatch, 0.2)
    report(rota_app, HOURLY, DAILY)
    async with rota_app.worker():
        await deploy(rota_dsn, code({"every": 2 * HOUR, "name": "hourly"}))
        await until(rota_app, "hourly", every=3600)
        assert (await rota_app.schedules.get("daily")).state == "active", (
            "somebody declares it still"
        )


class Declarations:
    """Declarations that the workers have repeated, by worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._counts: Counter[int] = Counter()
        monkeypatch.setattr(scheduler, "declare", self._declare)

    async def _declare(self, database: Database, *rest: Any) -> None:
        await declare(database, *rest)
        self._counts[rest[-1]] += 1

    async def further(self, worker: Worker, times: int) -> None:
        wanted = self._counts[worker.id] + times
        async with asyncio.timeout(60):
            while self._counts[worker.id] < wanted:
                await asyncio.sleep(0.01)


async def test_declare_newest_running_worker_wins(
    rota_dsn: str, rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older worker repeats its declarations, but changes nothing once it observes the new worker."""
    shorten_declare_interval(monkeypatch, 0.1)
    report(rota_app, HOURLY)
    declarations = Declarations(monkeypatch)
    async with rota_app.worker() as old, Rota(rota_dsn) as new:
        report(new, {"every": 2 * HOUR, "name": "hourly"})
        async with new.worker():
            await declarations.further(old, 2)  # one of them began after the new worker's start
            await until(new, "hourly", every=7200)
            await declarations.further(old, 3)
            assert (await new.schedules.get("hourly")).every == 7200
        await until(rota_app, "hourly", every=3600)


async def test_declare_schedule_of_no_running_worker_is_disabled(
    rota_dsn: str, rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_declare_interval(monkeypatch, 0.2)
    report(rota_app, DAILY)
    declarations = Declarations(monkeypatch)
    async with Rota(rota_dsn) as old:
        report(old, HOURLY, DAILY)
        async with old.worker(), rota_app.worker() as new:
            await declarations.further(new, 2)
            assert (await rota_app.schedules.get("hourly")).state == "active"
        async with rota_app.worker():
            await until(rota_app, "hourly", state="disabled")
            assert (await rota_app.schedules.get("daily")).state == "active"


async def test_declare_leaves_schedules_of_other_app_active(rota_dsn: str, rota_app: Rota) -> None:
    await deploy(rota_dsn, code(HOURLY))

    def other(app: Rota) -> None:
        @app.schedule(every=60)
        @app.task
        async def clean() -> None: ...

    await deploy(rota_dsn, other)

    assert [each.state for each in await rota_app.schedules.list()] == ["active", "active"]


async def test_declare_paused_schedule_stays_paused_through_deploys(
    rota_dsn: str, rota_app: Rota
) -> None:
    await deploy(rota_dsn, code(HOURLY))
    await rota_app.schedules.pause("hourly", "wait for the audit")

    await deploy(rota_dsn, code({**HOURLY, "input": {"day": "friday"}}))
    seen = await rota_app.schedules.get("hourly")
    assert (seen.state, seen.reason, seen.input) == (
        "paused",
        "wait for the audit",
        {"day": "friday"},
    )

    await deploy(rota_dsn, code({**HOURLY, "every": 60}))
    assert (await rota_app.schedules.get("hourly")).state == "paused"

    await deploy(rota_dsn, code())
    assert (await rota_app.schedules.get("hourly")).state == "disabled"
    await deploy(rota_dsn, code(HOURLY))
    seen = await rota_app.schedules.get("hourly")
    assert (seen.state, seen.reason) == ("paused", "wait for the audit")


async def test_declare_moves_next_tick_only_for_changed_times(
    rota_dsn: str, rota_harness: Harness
) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    await deploy(rota_dsn, code(HOURLY))
    await clock.advance(HOUR / 4)

    await deploy(rota_dsn, code({**HOURLY, "input": {"day": "friday"}, "overlap": "allow"}))
    seen = await app.schedules.get("hourly")
    assert (seen.next[0], seen.overlap) == (NOON + HOUR, "allow")

    await deploy(rota_dsn, code({**HOURLY, "every": HOUR / 2}))
    assert (await app.schedules.get("hourly")).next[0] == NOON + HOUR / 4 + HOUR / 2


async def test_declare_every_counts_from_starts(rota_dsn: str, rota_harness: Harness) -> None:
    await rota_harness.clock.set(NOON + HOUR / 3)

    await deploy(
        rota_dsn,
        code(
            {"every": HOUR, "name": "past", "starts": NOON - 1000 * HOUR},
            {"every": HOUR, "name": "future", "starts": NOON + 2 * HOUR},
        ),
    )

    assert (await rota_harness.app.schedules.get("past")).next[0] == NOON + HOUR
    assert (await rota_harness.app.schedules.get("future")).next[0] == NOON + 2 * HOUR


async def test_declare_ended_one_time_schedule_does_not_run_again(
    rota_dsn: str, rota_harness: Harness
) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    once = {"at": NOON + HOUR, "name": "once"}
    report(app, once)
    await clock.set(NOON)
    await rota_harness.run_until_idle()
    await clock.advance(2 * HOUR)
    await rota_harness.run_until_idle()
    assert (await app.schedules.get("once")).state == "ended"

    await deploy(rota_dsn, code())
    await rota_harness.run_until_idle()
    await rota_harness.run_until_idle()

    assert [each.run is not None for each in await app.schedules.ticks("once")] == [True]
    assert (await app.schedules.get("once")).state == "ended"


async def test_declare_takes_over_schedule_created_at_run_time(
    rota_dsn: str, rota_app: Rota, caplog: pytest.LogCaptureFixture
) -> None:
    report(rota_app)
    await rota_app.schedules.create("hourly", "report", every=60)

    await deploy(rota_dsn, code(HOURLY))

    seen = await rota_app.schedules.get("hourly")
    assert (seen.declared, seen.every) == (True, 3600)
    assert "made at run time; the code declares it now" in caplog.text
    with pytest.raises(ArgumentError, match="declared in code, so it is changed there"):
        await rota_app.schedules.update("hourly", every=60)


async def test_declare_unchanged_schedules_waits_for_no_lock(rota_dsn: str) -> None:
    """Otherwise starting workers would wait for locks on the rows that the scheduler fires."""
    await deploy(rota_dsn, code(HOURLY, DAILY))

    with psycopg.connect(rota_dsn) as connection:
        connection.execute("select from rota.schedules for update")
        async with asyncio.timeout(60):
            await deploy(rota_dsn, code(DAILY, HOURLY))


LOCK_WAITS = "select waitstart from pg_locks where not granted and waitstart is not null"


async def test_declare_changed_schedule_waits_for_row_lock(
    rota_dsn: str, direct_dsn: str, rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The declaration begins again after the server's lock timeout."""
    monkeypatch.setitem(_SESSION_SETTINGS, "lock_timeout", "100ms")
    await deploy(rota_dsn, code(HOURLY))

    waits: set[datetime] = set()
    with psycopg.connect(direct_dsn) as connection:
        connection.execute("select from rota.schedules for update")
        declaring = asyncio.create_task(deploy(rota_dsn, code({**HOURLY, "every": 60})))
        async with asyncio.timeout(60):
            while len(waits) < 3:
                waits |= {begin for (begin,) in await fetch(direct_dsn, LOCK_WAITS)}
                assert not declaring.done()
                await asyncio.sleep(0.005)
    await declaring

    assert (await rota_app.schedules.get("hourly")).every == 60


# Invalid declarations are refused early


def test_declare_two_schedules_with_same_name_is_refused() -> None:
    with pytest.raises(DefinitionError, match="a schedule called 'report' already"):
        report(Rota("local"), {"every": 60}, {"every": 61})


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"input": {"dey": "x"}}, "task 'greet' takes no argument 'dey'; it takes whom, times"),
        ({}, r"task 'greet' needs 'whom'; pass it with @app.schedule\(…, input=\{'whom': …\}\)"),
    ],
)
def test_declare_wrong_arguments_are_refused_at_decoration(
    said: dict[str, Any], reason: str
) -> None:
    app = Rota("local")

    @app.task
    async def greet(ctx: Context, whom: str, times: int = 1) -> None: ...

    with pytest.raises(DefinitionError, match=reason):
        app.schedule(every=60, **said)(greet)


async def test_declare_wrong_types_are_refused_at_worker_start(rota_app: Rota) -> None:
    @rota_app.schedule(every=60, input={"pages": "seven"})
    @rota_app.task
    async def report(pages: int) -> None: ...

    with pytest.raises(ArgumentError, match=r"schedule 'report': .*Expected `int`, got `str`"):
        async with rota_app.worker():
            pass
    assert await rota_app.schedules.list() == []


def test_declare_on_plain_function_is_refused() -> None:
    app = Rota("local")

    with pytest.raises(DefinitionError, match=r"put @app.schedule\(…\) above @app.task"):

        @app.schedule(every=60)  # type: ignore[type-var]
        async def plain() -> None: ...
