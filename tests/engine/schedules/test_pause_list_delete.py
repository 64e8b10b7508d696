"""Schedules that are paused, listed and deleted. The test sets the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from rota import ArgumentError, Rota
from rota.testing import Harness

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def app(rota_harness: Harness) -> Rota:
    app = rota_harness.app

    @app.task
    async def report() -> None: ...

    return app


async def test_schedule_paused_starts_nothing_until_resumed(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR, catch_up="all")

    await app.schedules.pause("x", "the printer is on fire")
    await rota_harness.clock.advance(3.5 * HOUR)
    await rota_harness.run_until_idle()
    seen = await app.schedules.get("x")
    assert (seen.state, seen.reason, seen.next) == ("paused", "the printer is on fire", [])
    assert await app.schedules.ticks("x") == []

    await app.schedules.resume("x")
    seen = await app.schedules.get("x")
    assert (seen.state, seen.reason, seen.next[0]) == ("active", None, NOON + 4 * HOUR)


async def test_schedule_one_time_paused_over_its_time_runs_on_resume(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", at=NOON + HOUR)
    await app.schedules.pause("x")
    await rota_harness.clock.advance(2 * HOUR)

    await app.schedules.resume("x")
    await rota_harness.run_until_idle()

    assert [each.planned for each in await app.schedules.ticks("x")] == [NOON + HOUR]
    with pytest.raises(ArgumentError, match="has ended"):
        await app.schedules.resume("x")
    with pytest.raises(ArgumentError, match="has ended: there is nothing to pause"):
        await app.schedules.pause("x")


async def test_schedule_resume_after_clock_set_back_resets_next_tick(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR)
    await rota_harness.clock.set(NOON + 48.5 * HOUR)
    await rota_harness.run_until_idle()
    await rota_harness.clock.set(NOON)
    assert (await app.schedules.get("x")).next[0] == NOON + 49 * HOUR

    await app.schedules.resume("x")

    for _ in range(2):  # a second resume changes nothing
        assert (await app.schedules.get("x")).next[0] == NOON + HOUR
        await app.schedules.resume("x")


# List and delete


async def test_schedule_list_filters_by_tenant_and_state(app: Rota) -> None:
    for name, tenant in (("b", "acme"), ("a", "acme"), ("c", "zeta"), ("d", None)):
        await app.schedules.create(name, "report", every=60, tenant=tenant)
    await app.schedules.pause("a")

    async def names(**which: Any) -> list[str]:
        return [each.name for each in await app.schedules.list(**which)]

    assert await names() == ["a", "b", "c", "d"]
    assert await names(tenant="acme") == ["a", "b"]
    assert await names(state="paused") == ["a"]
    assert await names(tenant="acme", state="active") == ["b"]


async def test_schedule_list_is_complete_beyond_one_page(
    app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.app.schedules.PAGE_ROWS", 2)
    for number in range(5):
        await app.schedules.create(f"s{number}", "report", every=60)

    assert [each.name for each in await app.schedules.list()] == [f"s{n}" for n in range(5)]


async def test_schedule_list_includes_row_with_unknown_time_zone(app: Rota, rota_dsn: str) -> None:
    await app.schedules.create("a", "report", cron="@daily")
    await app.schedules.create("b", "report", cron="@daily")
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute("update rota.schedules set tz = 'Atlantis/Poseidonis' where name = 'a'")

    [a, b] = await app.schedules.list()

    assert (a.tz, a.next, len(b.next)) == ("Atlantis/Poseidonis", [], 5)


async def test_schedule_delete_removes_ticks_and_keeps_runs(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", every=HOUR)
    await rota_harness.clock.advance(HOUR)
    await rota_harness.run_until_idle()
    [tick] = await app.schedules.ticks("x")

    await app.schedules.delete("x")
    await app.schedules.create("x", "report", every=HOUR)

    assert await app.schedules.ticks("x") == []
    assert await app.run(tick.run or 0).status() == "succeeded"


def test_schedules_sync_api_performs_every_operation(rota_dsn: str) -> None:
    app = Rota(rota_dsn)

    @app.task
    async def report() -> int:
        return 7

    schedules = app.schedules.sync
    try:
        schedules.create("x", report, every=HOUR)
        schedules.update("x", every=2 * HOUR)
        schedules.pause("x")
        assert schedules.get("x").state == "paused"
        schedules.resume("x")
        assert [each.every for each in schedules.list()] == [7200]
        run = schedules.trigger("x")
        assert run.status() == "queued"
        assert [each.run for each in schedules.ticks("x")] == [run.id]
        now = schedules.ticks("x")[0].planned
        assert schedules.backfill("x", now - HOUR, now) == ()
        schedules.delete("x")
        assert schedules.list() == []
    finally:
        app.close_sync()
