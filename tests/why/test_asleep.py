"""Explanation of a sleeping job (wake-up time, awaited signal, last error) and of a quarantined one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota import Context, Retry
from rota.engine.durable.journal import WorkerJournal

from .conftest import Asking


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


async def test_it_was_started_for_later(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.options(delay=timedelta(hours=1)).start()

    why = await asking.why(run)
    [reason] = why.reasons
    assert (reason.code, why.status, reason.is_stuck) == ("delay", "waiting", False)
    assert reason.until is not None
    assert 3500 < (reason.until - why.now).total_seconds() <= 3600


async def test_its_time_has_come_and_somebody_has_to_wake_it(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.options(delay=timedelta(hours=1)).start()
    await asking.sql("update rota.sleeping set wake_at = rota.clock() - interval '1 second'")

    reason = await asking.first(run)
    assert (reason.code, reason.is_stuck) == ("no_worker", True)
    await asking.register()
    reason = await asking.first(run)
    assert (reason.code, reason.is_stuck) == ("due", False)


@pytest.mark.parametrize("change", ["state = 'draining'", "drain_requested = rota.clock()"])
async def test_who_is_about_to_leave_wakes_nobody(asking: Asking, change: str) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.options(delay=timedelta(hours=1)).start()
    await asking.sql("update rota.sleeping set wake_at = rota.clock() - interval '1 second'")
    await asking.register()
    await asking.sql(f"update rota.workers set {change}")

    reason = await asking.first(run)

    assert (reason.code, reason.is_stuck) == ("no_worker", True)
    assert "all workers are draining" in reason.message
    await asking.register()
    assert (await asking.first(run)).code == "due"


async def test_it_failed_and_is_tried_again_later(asking: Asking) -> None:
    @asking.app.task(retry=Retry(max_attempts=3, delay=3600))
    async def work() -> None:
        raise ValueError("no bread today")

    async with asking.app.worker():
        run = await work.start()
        reason = await asking.until(run, "retry")

    assert "attempt 1 of it failed with ValueError" in reason.message
    assert "bread" not in reason.message
    assert reason.detail == "no bread today"
    assert reason.until is not None


async def test_its_code_sleeps(asking: Asking) -> None:
    @asking.app.task
    async def work(ctx: Context) -> None:
        await ctx.sleep(hours=1)

    async with asking.app.worker():
        run = await work.start()
        reason = await asking.until(run, "sleep")

    assert reason.until is not None
    assert not reason.is_stuck


async def test_it_waits_for_a_signal_by_its_name(asking: Asking) -> None:
    @asking.app.task
    async def work(ctx: Context) -> None:
        await ctx.wait_signal("approval {of} 'it'", bool)

    async with asking.app.worker():
        run = await work.start()
        reason = await asking.until(run, "signal")

        assert (reason.kind, reason.subject) == ("signal", "approval {of} 'it'")
        assert reason.is_stuck
        assert reason.remedy is not None
        assert f"rota signal {run.id}" in reason.remedy
        await run.signal(reason.subject, True)
        await run.result(timeout=60)


async def test_a_signal_with_a_timeout_is_not_waited_for_for_ever(asking: Asking) -> None:
    @asking.app.task
    async def work(ctx: Context) -> None:
        await ctx.wait_signal("approval", bool, timeout=3600, default=False)

    async with asking.app.worker():
        run = await work.start()
        reason = await asking.until(run, "signal")

    assert reason.until is not None
    assert not reason.is_stuck


async def test_a_signal_beside_a_sleep_is_not_all_it_waits_for(asking: Asking) -> None:
    @asking.app.task
    async def work(ctx: Context) -> None:
        await asyncio.gather(ctx.wait_signal("go"), ctx.sleep(hours=1))

    async with asking.app.worker():
        run = await work.start()
        await asking.until(run, "signal")
        why = await asking.why(run)

    assert [each.code for each in why.reasons] == ["signal", "sleep"]
    assert why.status == "waiting"


async def test_a_signal_that_a_failed_attempt_waited_for_is_not_why(asking: Asking) -> None:
    @asking.app.task(retry=Retry(max_attempts=3, delay=3600))
    async def work(ctx: Context) -> None:
        async def fall_over() -> None:
            await ctx.sleep(0.2)
            raise ValueError

        await asyncio.gather(ctx.wait_signal("go"), fall_over())

    async with asking.app.worker():
        run = await work.start()
        await asking.until(run, "retry")

    assert await asking.sql("select name from rota.steps where open") == [("go",)]
    why = await asking.why(run)
    assert [each.code for each in why.reasons] == ["retry"]
    assert why.status == "waiting"


async def test_a_step_failed_and_is_tried_again_later(asking: Asking) -> None:
    def charge() -> None:
        raise OSError("card 4242 refused")

    @asking.app.task
    async def work(ctx: Context) -> None:
        await ctx.options(retry=Retry(max_attempts=3, delay=3600)).step("charge", charge)

    async with asking.app.worker():
        run = await work.start()
        reason = await asking.until(run, "step_retry")

    assert "step 'charge' of it failed once, last with OSError" in reason.message
    assert "4242" not in reason.message
    assert reason.detail == "card 4242 refused"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("rota.errors.WorkerLost", "too many workers were lost"),
        ("rota.errors.ReplayMismatch", "code has changed"),
    ],
)
async def test_it_is_in_quarantine(asking: Asking, error: str, words: str) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    await asking.register()
    await asking.sql(
        "with gone as (delete from rota.queued returning *)"
        " insert into rota.quarantine (job, priority, attempt, lost, queue, task, error)"
        " select job, priority, 4, -5, queue, task, json_build_object('type', %s::text, 'message',"
        " 'planted')"
        " from gone",
        error,
    )

    reason = await asking.first(run)

    assert (reason.code, reason.is_stuck, reason.detail) == ("quarantined", True, "planted")
    assert words in reason.message
    assert "planted" not in reason.message
    assert reason.remedy is not None
    assert f"rota release {run.id}" in reason.remedy
