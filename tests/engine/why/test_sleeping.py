"""Explanation of a sleeping job (wake-up time, awaited signal, last error) and of a quarantined one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota import Context, Retry
from rota.engine.durable.journal import WorkerJournal
from support.explainer import Explainer


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


async def test_explain_delayed_run_reports_its_start_time(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.options(delay=timedelta(hours=1)).start()

    why = await explainer.why(run)
    [reason] = why.reasons
    assert (reason.code, why.status, reason.is_stuck) == ("delay", "waiting", False)
    assert reason.until is not None
    assert 3500 < (reason.until - why.now).total_seconds() <= 3600


async def test_explain_due_run_without_worker_is_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.options(delay=timedelta(hours=1)).start()
    await explainer.sql("update rota.sleeping set wake_at = rota.clock() - interval '1 second'")

    reason = await explainer.first(run)
    assert (reason.code, reason.is_stuck) == ("no_worker", True)
    await explainer.register()
    reason = await explainer.first(run)
    assert (reason.code, reason.is_stuck) == ("due", False)


@pytest.mark.parametrize("change", ["state = 'draining'", "drain_requested = rota.clock()"])
async def test_explain_due_run_with_only_draining_workers_is_stuck(
    explainer: Explainer, change: str
) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.options(delay=timedelta(hours=1)).start()
    await explainer.sql("update rota.sleeping set wake_at = rota.clock() - interval '1 second'")
    await explainer.register()
    await explainer.sql(f"update rota.workers set {change}")

    reason = await explainer.first(run)

    assert (reason.code, reason.is_stuck) == ("no_worker", True)
    assert "all workers are draining" in reason.message
    await explainer.register()
    assert (await explainer.first(run)).code == "due"


async def test_explain_failed_attempt_reports_retry_and_error_class(explainer: Explainer) -> None:
    @explainer.app.task(retry=Retry(max_attempts=3, delay=3600))
    async def work() -> None:
        raise ValueError("no bread today")

    async with explainer.app.worker():
        run = await work.start()
        reason = await explainer.until(run, "retry")

    assert "attempt 1 of it failed with ValueError" in reason.message
    assert "bread" not in reason.message
    assert reason.detail == "no bread today"
    assert reason.until is not None


async def test_explain_sleeping_code_reports_wake_up_time(explainer: Explainer) -> None:
    @explainer.app.task
    async def work(ctx: Context) -> None:
        await ctx.sleep(hours=1)

    async with explainer.app.worker():
        run = await work.start()
        reason = await explainer.until(run, "sleep")

    assert reason.until is not None
    assert not reason.is_stuck


async def test_explain_signal_wait_names_the_signal_and_is_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work(ctx: Context) -> None:
        await ctx.wait_signal("approval {of} 'it'", bool)

    async with explainer.app.worker():
        run = await work.start()
        reason = await explainer.until(run, "signal")

        assert (reason.kind, reason.subject) == ("signal", "approval {of} 'it'")
        assert reason.is_stuck
        assert reason.remedy is not None
        assert f"rota signal {run.id}" in reason.remedy
        await run.signal(reason.subject, True)
        await run.result(timeout=60)


async def test_explain_signal_wait_with_timeout_is_not_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work(ctx: Context) -> None:
        await ctx.wait_signal("approval", bool, timeout=3600, default=False)

    async with explainer.app.worker():
        run = await work.start()
        reason = await explainer.until(run, "signal")

    assert reason.until is not None
    assert not reason.is_stuck


async def test_explain_signal_wait_beside_sleep_reports_both(explainer: Explainer) -> None:
    @explainer.app.task
    async def work(ctx: Context) -> None:
        await asyncio.gather(ctx.wait_signal("go"), ctx.sleep(hours=1))

    async with explainer.app.worker():
        run = await work.start()
        await explainer.until(run, "signal")
        why = await explainer.why(run)

    assert [each.code for each in why.reasons] == ["signal", "sleep"]
    assert why.status == "waiting"


async def test_explain_signal_wait_of_failed_attempt_is_not_reported(explainer: Explainer) -> None:
    @explainer.app.task(retry=Retry(max_attempts=3, delay=3600))
    async def work(ctx: Context) -> None:
        async def fall_over() -> None:
            await ctx.sleep(0.2)
            raise ValueError

        await asyncio.gather(ctx.wait_signal("go"), fall_over())

    async with explainer.app.worker():
        run = await work.start()
        await explainer.until(run, "retry")

    assert await explainer.sql("select name from rota.steps where open") == [("go",)]
    why = await explainer.why(run)
    assert [each.code for each in why.reasons] == ["retry"]
    assert why.status == "waiting"


async def test_explain_failed_step_reports_step_retry(explainer: Explainer) -> None:
    def charge() -> None:
        raise OSError("card 4242 refused")

    @explainer.app.task
    async def work(ctx: Context) -> None:
        await ctx.options(retry=Retry(max_attempts=3, delay=3600)).step("charge", charge)

    async with explainer.app.worker():
        run = await work.start()
        reason = await explainer.until(run, "step_retry")

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
async def test_explain_quarantined_job_reports_cause_and_release_command(
    explainer: Explainer, error: str, words: str
) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    await explainer.register()
    await explainer.sql(
        "with gone as (delete from rota.queued returning *)"
        " insert into rota.quarantine (job, priority, attempt, crashes, queue, task, error)"
        " select job, priority, 4, -5, queue, task, json_build_object('type', %s::text, 'message',"
        " 'planted')"
        " from gone",
        error,
    )

    reason = await explainer.first(run)

    assert (reason.code, reason.is_stuck, reason.detail) == ("quarantined", True, "planted")
    assert words in reason.message
    assert "planted" not in reason.message
    assert reason.remedy is not None
    assert f"rota release {run.id}" in reason.remedy
