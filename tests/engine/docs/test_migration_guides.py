"""The code that the migration guides show after the move works as they describe."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from rota import RunFailed
from rota.testing import Harness
from support.doc_pages import load_program

from_celery = load_program("examples/migrating/from_celery.py")
from_apscheduler = load_program("examples/migrating/from_apscheduler.py")


@pytest.fixture
async def celery(rota_dsn: str) -> AsyncIterator[Harness]:
    from_celery.sent.clear()
    async with Harness(from_celery.app, rota_dsn) as harness:
        yield harness


@pytest.fixture
async def apscheduler(rota_dsn: str) -> AsyncIterator[Harness]:
    from_apscheduler.seen.clear()
    async with Harness(from_apscheduler.app, rota_dsn) as harness:
        yield harness


async def test_celery_guide_key_starts_once_and_delay_starts_later(celery: Harness) -> None:
    async with celery.app.worker():
        await from_celery.place(7)
        again = await from_celery.send_invoice.options(key="invoice-7").start(7)
        assert not again.created
        assert await again.result(timeout=60) == "sent 7"

    assert [order for order, _ in from_celery.sent] == [7, 7]
    await celery.clock.advance(timedelta(minutes=5))
    await celery.run_until_idle()
    assert [order for order, _ in from_celery.sent] == [7, 7, 7]
    assert len({message for _, message in from_celery.sent}) == 3


async def test_celery_guide_retry_later_runs_later_with_same_id(
    celery: Harness,
) -> None:
    from_celery.overloaded_until[8] = 1
    run = await from_celery.send_invoice.start(8)
    await celery.run_until_idle()
    assert await run.status() == "sleeping"

    await celery.clock.advance(timedelta(seconds=60))
    await celery.run_until_idle()

    assert await run.result(timeout=60) == "sent 8"
    assert from_celery.sent == [(8, f"invoice-{run.id}")]


async def test_celery_guide_non_retryable_error_fails_at_once(celery: Harness) -> None:
    run = await from_celery.send_invoice.start(-1)
    await celery.run_until_idle()
    with pytest.raises(RunFailed, match="there is no order -1"):
        await run.result(timeout=60)


async def test_celery_guide_chord_and_canvas_return_results(celery: Harness) -> None:
    total = await from_celery.gallery.start(["a", "bb", "ccc"])
    report = await from_celery.report.start(day="2026-11-16")
    await celery.run_until_idle()

    assert await total.result(timeout=60) == 6
    assert await report.result(timeout=60) == {"publish": "2 rows, 2 charts"}


async def test_celery_guide_beat_schedule_runs_at_local_time(
    celery: Harness,
) -> None:
    await celery.clock.set(datetime(2026, 11, 16, 5, 0, tzinfo=UTC))
    await celery.run_until_idle()
    await celery.clock.advance(timedelta(hours=2))
    await celery.run_until_idle()

    [tick] = await celery.app.schedules.ticks("morning_report")
    assert (tick.planned, tick.outcome) == (datetime(2026, 11, 16, 6, 30, tzinfo=UTC), "succeeded")


async def test_apscheduler_guide_declared_schedules_run(apscheduler: Harness) -> None:
    await apscheduler.clock.set(datetime(2026, 11, 16, 5, 0, tzinfo=UTC))
    await apscheduler.run_until_idle()
    await apscheduler.clock.advance(timedelta(hours=1, seconds=10))
    await apscheduler.run_until_idle()

    [tick] = await apscheduler.app.schedules.ticks("morning_report")
    assert tick.outcome == "succeeded"
    assert tick.run is not None
    assert await apscheduler.app.run(tick.run).result(timeout=60) == "report for 2026-11-16"
    assert "feed" in from_apscheduler.seen


async def test_apscheduler_guide_reminder_runs_once_at_its_time(apscheduler: Harness) -> None:
    await apscheduler.clock.set(datetime(2026, 11, 16, 5, 0, tzinfo=UTC))
    when = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
    run = await from_apscheduler.remind_me(1, when, "tea")
    assert await from_apscheduler.remind_me(1, when, "tea") == run
    await apscheduler.run_until_idle()
    assert "1: tea" not in from_apscheduler.seen

    await apscheduler.clock.set(when)
    await apscheduler.run_until_idle()
    assert from_apscheduler.seen.count("1: tea") == 1


async def test_apscheduler_guide_customer_schedule_is_paused_and_deleted(
    apscheduler: Harness,
) -> None:
    schedules = apscheduler.app.schedules
    await from_apscheduler.subscribe(42, "Europe/Berlin")
    assert (await schedules.get("digest-42")).tenant == "42"

    await from_apscheduler.pause_digest(42)
    assert (await schedules.get("digest-42")).state == "paused"
    await from_apscheduler.resume_digest(42)
    run = await schedules.trigger("digest-42")
    await apscheduler.run_until_idle()
    assert await run.result(timeout=60) == "digest for 42"

    await from_apscheduler.unsubscribe(42)
    assert [each.name for each in await schedules.list(tenant="42")] == []
