"""Steps that the code does not await: a replay does not await them either, and adds no entry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Context, Rota
from rota.engine.durable.journal import WorkerJournal
from rota.testing import Harness
from support.durable_helpers import steps, wait_until_sleeping


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


async def test_step_abandoned_by_code_timeout_is_not_run_on_replay(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app, ran = rota_harness.app, []

    limits: list[asyncio.Timeout] = []

    async def slow() -> None:
        ran.append("slow")
        limits[-1].reschedule(asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    async def quick() -> str:
        ran.append("quick")
        return "quick"

    @app.task
    async def impatient(ctx: Context) -> str:
        try:
            # When the code runs for the first time, the step begins and then ends the time.
            async with asyncio.timeout(0.05 if ran else None) as limit:
                limits.append(limit)
                await ctx.step("slow", slow)
        except TimeoutError:
            found = await ctx.step("quick", quick)
        await ctx.wait_signal("go")
        return found

    async with app.worker():
        run = await impatient.start()
        await wait_until_sleeping(run)
        assert await steps(rota_dsn, run) == ["step slow", "step quick", "wait go …"]
        await run.signal("go")
        assert await run.result(timeout=60) == "quick"
    assert ran == ["slow", "quick"]


async def test_branch_cancelled_after_race_is_not_run_on_replay(
    rota_app: Rota, rota_dsn: str
) -> None:
    ran: list[Any] = []

    both = asyncio.Barrier(2)

    async def run_for(seconds: float) -> float:
        ran.append(seconds)
        await asyncio.wait_for(both.wait(), 60)
        await asyncio.sleep(seconds)
        return seconds

    @rota_app.task
    async def race(ctx: Context) -> float:
        racers = [
            asyncio.create_task(_step(ctx, f"racer {each}", run_for, each)) for each in (0.01, 60.0)
        ]
        first, rest = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
        for each in rest:
            each.cancel()
        await asyncio.wait(racers)
        await ctx.wait_signal("go")
        winner: float = first.pop().result()
        return winner

    async with rota_app.worker():
        run = await race.start()
        await wait_until_sleeping(run)
        await run.signal("go")
        assert await run.result(timeout=60) == 0.01
    assert sorted(ran) == [0.01, 60.0]


async def _step(ctx: Context, name: str, fn: Any, *args: Any) -> Any:
    return await ctx.step(name, fn, *args)


async def test_step_stopped_with_its_job_runs_again(rota_app: Rota, rota_dsn: str) -> None:
    ran = []
    stuck = asyncio.Event()

    async def work() -> int:
        ran.append(1)
        stuck.set()
        if len(ran) == 1:
            await asyncio.Event().wait()
        return len(ran)

    @rota_app.task
    async def job(ctx: Context) -> int:
        return await ctx.step("work", work)

    run = await job.start()
    async with rota_app.worker() as worker:
        await stuck.wait()
        worker.hurry()
    async with rota_app.worker():
        assert await run.result(timeout=60) == 2
    assert await steps(rota_dsn, run) == ["step work"]
