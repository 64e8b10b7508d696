"""Sleeping: by the database's clock, without a slot, even if the code swallows the suspension."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import ArgumentError, Context, Rota, RunCancelled, StepFailed, Task
from rota.engine.durable.journal import WorkerJournal
from rota.errors import RotaError
from rota.model.events import JobClaimed, JobSuspended
from rota.testing import Harness
from support.durable_helpers import steps, wait_for_suspensions, wait_until_sleeping
from support.queries import ONCE, TWICE, fetch

YEAR = timedelta(days=365)


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


# Duration


async def test_sleep_of_a_year_follows_database_clock(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    ran: list[str] = []

    @app.task
    async def work(ctx: Context) -> int:
        await ctx.step("before", ran.append, "before")
        await ctx.sleep(YEAR)
        await ctx.step("after", ran.append, "after")
        return ctx.attempt

    run = await work.start()
    await rota_harness.run_until_idle()
    assert await run.status() == "sleeping"
    await clock.advance(YEAR - timedelta(seconds=1))
    await rota_harness.run_until_idle()
    assert ran == ["before"]
    await clock.advance(timedelta(seconds=1))
    await rota_harness.run_until_idle()
    assert await run.result(timeout=60) == 1
    assert ran == ["before", "after"]


async def test_sleep_ends_in_running_worker_when_due(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> str:
        await ctx.sleep(hours=1)
        return "woken"

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(timedelta(hours=1))
        assert await run.result(timeout=60) == "woken"


async def test_sleep_accepts_number_timedelta_units_and_time(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    until = datetime.now(UTC) + timedelta(days=2)

    @app.task
    async def work(ctx: Context, how: str) -> None:
        match how:
            case "number":
                await ctx.sleep(90)
            case "timedelta":
                await ctx.sleep(timedelta(seconds=90))
            case "units":
                await ctx.sleep(minutes=1, seconds=30)
            case "both":
                await ctx.sleep(60, seconds=30)
            case "until":
                await ctx.sleep_until(until)

    runs = {how: await work.start(how) for how in ("number", "timedelta", "units", "both", "until")}
    await rota_harness.run_until_idle()
    rows = await fetch(
        rota_dsn, "select job, extract(epoch from wake_at - at)::float8, wake_at from rota.steps"
    )
    found = {job: (seconds, end) for job, seconds, end in rows}
    for how in ("number", "timedelta", "units", "both"):
        assert found[runs[how].id][0] == pytest.approx(90, abs=0.01)
    assert found[runs["until"].id][1] == until


async def test_sleep_of_zero_seconds_does_not_suspend_job(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app

    @app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        await ctx.sleep(0)
        await ctx.sleep_until(datetime(2020, 1, 1, tzinfo=UTC))
        await ctx.step("after", lambda: None)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    run = await work.start()
    await rota_harness.run_until_idle()
    assert await run.result(timeout=60) == 2
    assert await steps(rota_dsn, run) == ["sleep sleep", "sleep sleep 2", "step after"]
    assert not [each for each in rota_harness.events if isinstance(each, JobSuspended)]


async def test_sleep_below_inline_limit_does_not_suspend_job(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.sleep(0.04)

    async with app.worker():
        run = await work.start()
        await run.result(timeout=60)
    assert await steps(rota_dsn, run) == ["sleep sleep"]
    assert not [each for each in rota_harness.events if isinstance(each, JobSuspended)]


async def test_sleep_invalid_duration_is_refused(rota_app: Rota) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        for wrong in (-1, float("nan"), float("inf"), 200 * 366 * 86400):
            with pytest.raises(ArgumentError, match="0 seconds to a hundred years"):
                await ctx.sleep(wrong)
            with pytest.raises(ArgumentError, match="0 seconds to a hundred years"):
                await ctx.wait_signal("x", timeout=wrong)
        with pytest.raises(ArgumentError, match="has no time zone; pass one that has"):
            await ctx.sleep_until(datetime(2040, 1, 1))  # noqa: DTZ001

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)


async def test_sleep_of_job_woken_early_continues_until_due(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> str:
        await ctx.sleep(hours=1)
        return "woken"

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        [(before,)] = await fetch(rota_dsn, "select wake_at from rota.sleeping")
        await fetch(rota_dsn, "update rota.sleeping set wake_at = rota.clock() returning job")
        await wait_for_suspensions(rota_harness, run, 2)
        assert await fetch(rota_dsn, "select wake_at from rota.sleeping") == [(before,)]


# Slots


async def test_sleeping_jobs_occupy_no_slot(rota_harness: Harness, rota_dsn: str) -> None:
    """Fifty jobs sleep in a worker with one slot, and another job still runs."""
    app = rota_harness.app
    meanwhile = 0

    @app.task
    async def sleeper(ctx: Context, n: int) -> int:
        await ctx.step("before", lambda: None)
        await ctx.sleep(hours=1)
        return n

    @app.task
    async def busy() -> str:
        nonlocal meanwhile
        [(meanwhile,)] = await fetch(rota_dsn, "select count(*) from rota.sleeping")
        return "done"

    async with app.worker(concurrency=1) as worker:
        runs = await app.start_many([sleeper.bind(n) for n in range(50)])
        await wait_until_sleeping(*runs)
        assert worker.session.slots.running == 0
        assert await fetch(rota_dsn, "select count(*) from rota.claims") == [(0,)]
        assert await (await busy.start()).result(timeout=60) == "done"
        assert meanwhile == 50
        await rota_harness.clock.advance(timedelta(hours=1))
        assert [await run.result(timeout=60) for run in runs] == list(range(50))


async def test_sleeping_job_does_not_expire(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> str:
        await ctx.sleep(days=2)
        return "done"

    run = await work.options(expires=timedelta(hours=1)).start()
    await rota_harness.run_until_idle()
    await rota_harness.clock.advance(timedelta(days=2))
    await rota_harness.run_until_idle()
    assert await run.result(timeout=60) == "done"


async def test_sleeping_run_is_cancelled_at_once(rota_harness: Harness) -> None:
    app = rota_harness.app
    ran: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        try:
            await ctx.sleep(hours=1)
        finally:
            ran.append("out")

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        assert await run.cancel() == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        await rota_harness.clock.advance(timedelta(hours=2))
    assert ran == ["out"]


# Code that swallows the suspension


@pytest.mark.parametrize("caught", [asyncio.CancelledError, BaseException])
async def test_suspension_swallowed_by_code_still_suspends_job(
    rota_harness: Harness, rota_dsn: str, caught: type[BaseException]
) -> None:
    app = rota_harness.app
    went_on: list[str] = []

    @app.task
    async def work(ctx: Context) -> str:
        with suppress(caught):
            await ctx.sleep(hours=1)
        went_on.append("went on")
        with suppress(Exception):
            ctx.uuid()
        return "done"

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        assert await steps(rota_dsn, run) == ["sleep sleep"]
        await rota_harness.clock.advance(timedelta(hours=1))
        assert await run.result(timeout=60) == "done"
    assert went_on == ["went on", "went on"]


async def test_suspension_swallowed_then_return_does_not_end_job(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app

    @app.task(retry=ONCE)
    async def work(ctx: Context, how: str) -> str:
        try:
            await ctx.sleep(hours=1)
        except BaseException:
            if how == "raises":
                raise ValueError("in its way out") from None
            return "too early"
        return "woken"

    async with app.worker():
        runs = [await work.start(how) for how in ("returns", "raises")]
        await wait_until_sleeping(*runs)
        await rota_harness.clock.advance(timedelta(hours=1))
        assert [await run.result(timeout=60) for run in runs] == ["woken", "woken"]


async def test_suspension_swallowed_in_loop_does_not_block_worker(
    rota_harness: Harness, double: Task[[int], int]
) -> None:
    app = rota_harness.app
    stop = False

    @app.task
    async def work(ctx: Context) -> None:
        while not stop:
            with suppress(BaseException):
                await ctx.sleep(hours=1)

    async with app.worker():
        run = await work.start()
        await rota_harness.wait_for_event(JobClaimed, job=run.id)
        async with asyncio.timeout(60):
            assert await (await double.start(4)).result() == 8
        stop = True
        await wait_until_sleeping(run)


async def test_step_durable_calls_inside_are_refused(
    rota_app: Rota, double: Task[[int], int]
) -> None:
    told: dict[str, str] = {}

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        tries: dict[str, Any] = {
            "step": lambda: ctx.step("inner", lambda: None),
            "sleep": lambda: ctx.sleep(0),
            "wait": lambda: ctx.wait_signal("word"),
            "restart": lambda: ctx.restart(),
            "now": ctx.now,
            "uuid": ctx.uuid,
            "version": lambda: ctx.version("x"),
            "map": lambda: ctx.map([double.bind(1)]),
            "run": lambda: ctx.run(double.bind(1)),
        }
        for name, ask in tries.items():

            async def outer(ask: Any = ask) -> None:
                answer = ask()
                if asyncio.iscoroutine(answer):
                    await answer

            with pytest.raises(StepFailed) as failed:
                await ctx.step(name, outer)
            told[name] = failed.value.reason

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    for name, reason in told.items():
        assert reason.startswith(f"step {name!r} cannot"), reason
    assert "steps, sleeps, waits or values" in told["sleep"]
    assert "call tasks" in told["map"]


async def test_transaction_sleep_wait_or_restart_inside_is_refused(rota_app: Rota) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        async with ctx.transaction():
            for wait in (ctx.sleep(10), ctx.wait_signal("word"), ctx.restart()):
                with pytest.raises(RotaError, match=r"inside ctx\.transaction\(\)"):
                    await wait

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
