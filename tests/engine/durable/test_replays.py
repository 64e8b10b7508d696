"""Replay: code gets the same values, versions mark changes, and a mismatch stops the job."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta
from typing import Any

import pytest

from rota import Context, ReplayMismatch, Retry, Rota, RunCancelled
from rota.engine.db_clock import DatabaseClock
from rota.engine.durable.journal import WorkerJournal
from rota.model.events import JobQuarantined
from rota.testing import Harness
from support.durable_helpers import (
    lose_workers,
    note,
    steps,
    wait_for_suspensions,
    wait_until_sleeping,
)
from support.queries import TWICE, fetch

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


# Values


async def test_replay_returns_same_values_in_each_execution(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    seen: list[list[Any]] = []

    @app.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        seen.append([ctx.now(), ctx.random(), ctx.uuid(), ctx.now(), ctx.random(), ctx.uuid()])
        await ctx.sleep(HOUR)
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(HOUR)
        await run.result(timeout=60)
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    now, number, id, later, other, another = seen[0]
    assert now.tzinfo is UTC
    assert now <= later
    assert 0 <= number < 1
    assert number != other
    assert id != another
    assert id.version == 4


async def test_value_is_stored_before_next_step_begins(rota_app: Rota, rota_dsn: str) -> None:
    """The step fails and is not stored; the value that it used is."""
    seen: list[Any] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        key = ctx.uuid()

        async def charge() -> str:
            seen.append((key, await steps(rota_dsn, ctx.job_id)))
            if ctx.attempt == 1:
                raise ValueError("cut short")
            return str(key)

        return await ctx.step("charge", charge)

    async with rota_app.worker():
        found = await (await work.start()).result(timeout=60)
    assert [str(key) for key, _ in seen] == [found, found]
    assert seen[0][1] == ["value uuid"]


async def test_value_is_stored_before_transaction_and_child_run(
    rota_app: Rota, rota_dsn: str
) -> None:
    seen: list[list[str]] = []

    @rota_app.task
    async def called(job: int) -> list[str]:
        return await steps(rota_dsn, job)

    @rota_app.task
    async def work(ctx: Context) -> None:
        ctx.uuid()
        async with ctx.transaction():
            seen.append(await steps(rota_dsn, ctx.job_id))
        ctx.random()
        seen.append(await ctx.run(called.bind(ctx.job_id)))

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
    assert seen == [["value uuid"], ["value uuid", "value random"]]


async def test_now_after_clock_set_back_does_not_decrease(
    rota_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ctx.now()` does not go back even if the next worker's clock is behind."""
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> bool:
        before = ctx.now()
        await ctx.sleep(HOUR)
        return ctx.now() >= before and ctx.now() >= before

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        now = DatabaseClock.now
        monkeypatch.setattr(DatabaseClock, "now", lambda self: now(self) - timedelta(days=1))
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) is True


async def test_now_follows_database_clock(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> Any:
        before = ctx.now()
        await ctx.sleep(days=400)
        return (ctx.now() - before).total_seconds()

    run = await work.start()
    await rota_harness.run_until_idle()
    await rota_harness.clock.advance(timedelta(days=400))
    await rota_harness.run_until_idle()
    assert await run.result(timeout=60) == pytest.approx(400 * 86400, abs=60)


async def test_replay_after_lost_worker_returns_same_values(rota_harness: Harness) -> None:
    app = rota_harness.app
    seen: list[Any] = []

    @app.task(retry=Retry(max_attempts=3, delay=0))
    async def work(ctx: Context) -> None:
        key = ctx.uuid()

        async def charge() -> None:
            seen.append(key)
            if len(seen) == 1:
                await asyncio.Event().wait()

        await ctx.step("charge", charge)

    run = await work.start()
    async with app.worker() as worker:
        async with asyncio.timeout(60):
            while not seen:
                await asyncio.sleep(0.01)
        await lose_workers(app)
        worker.session.heartbeat.beat_now()
        await run.result(timeout=60)
    assert len(seen) == 2
    assert seen[0] == seen[1]


# Changed code


async def test_version_changes_new_runs_but_not_begun_runs(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    is_new = False
    ran: list[str] = []

    @app.task
    async def work(ctx: Context, name: str) -> str:
        fee = "old"
        if is_new and ctx.version("fees"):
            fee = "new"
            await ctx.step("fee", note, ran, f"fee {name}")
        await ctx.step("charge", note, ran, f"charge {name}")
        await ctx.sleep(HOUR)
        await ctx.sleep(HOUR)
        return fee

    async with app.worker():
        old = await work.start("a")
        await wait_until_sleeping(old)
        is_new = True
        new = await work.start("b")
        await wait_until_sleeping(new)
        for times in (2, 3):
            await rota_harness.clock.advance(HOUR)
            if times == 2:
                await wait_for_suspensions(rota_harness, old, 2)
                await wait_for_suspensions(rota_harness, new, 2)
                await wait_until_sleeping(old, new)
        assert [await run.result(timeout=60) for run in (old, new)] == ["old", "new"]
    assert ran == ["charge a", "fee b", "charge b"]


async def test_version_is_stored_once_and_same_in_each_attempt(
    rota_app: Rota, rota_dsn: str
) -> None:
    seen: list[list[bool]] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        first = ctx.version("fees")
        await ctx.step("charge", lambda: None)
        seen.append([first, ctx.version("fees"), ctx.version("later")])
        await ctx.step("after", lambda: None)
        if ctx.attempt == 1:
            raise ValueError("not yet")

    async with rota_app.worker():
        run = await work.start()
        await run.result(timeout=60)
    assert seen == [[True, True, True]] * 2
    assert await steps(rota_dsn, run) == [
        "version fees",
        "step charge",
        "version later",
        "step after",
    ]


@pytest.mark.parametrize("removed", ["version", "value"])
async def test_replay_tolerates_removed_version_or_value(
    rota_harness: Harness, removed: str
) -> None:
    app = rota_harness.app
    is_old = True

    @app.task
    async def work(ctx: Context) -> str:
        if is_old and removed == "version":
            assert ctx.version("fees")
        if is_old and removed == "value":
            ctx.uuid()
            ctx.now()
        await ctx.step("charge", lambda: None)
        await ctx.sleep(HOUR)
        await ctx.step("after", lambda: None)
        return "done"

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        is_old = False
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == "done"


CHANGES = {
    "another step": ("step 'reserve'", "step 'charge'"),
    "a step before": ("step 'reserve'", "step 'charge'"),
    "a sleep for a step": ("sleep no. 2", "step 'charge'"),
    "a step less": ("its end", "step 'charge'"),
    "a repeat": ("step 'charge' no. 2", "sleep"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_replay_mismatch_quarantines_job_until_code_is_fixed(
    rota_harness: Harness, rota_dsn: str, change: str
) -> None:
    app = rota_harness.app
    now: str | None = None
    ran: list[str] = []

    @app.task(retry=Retry(max_attempts=5, delay=0))
    async def work(ctx: Context) -> int:
        match now:
            case "another step":
                await ctx.step("reserve", note, ran, "wrong")
            case "a step before":
                await ctx.step("reserve", note, ran, "wrong")
                await ctx.step("charge", note, ran, "wrong")
            case "a sleep for a step":
                await ctx.sleep(1)
            case "a repeat":
                await ctx.step("charge", note, ran, "charge")
                await ctx.step("charge", note, ran, "wrong")
            case "a step less":
                return 0
            case None:
                await ctx.step("charge", note, ran, "charge")
        await ctx.sleep(HOUR)
        return ctx.attempt

    asked, kept = CHANGES[change]
    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        now = change
        await rota_harness.clock.advance(HOUR)
        for times in (1, 2):
            async with asyncio.timeout(60):
                while len(_quarantined(rota_harness)) < times:
                    await asyncio.sleep(0.01)
            assert await run.status() == "quarantined"
            [(document,)] = await fetch(rota_dsn, "select error from rota.quarantine")
            assert document["type"] == "rota.errors.ReplayMismatch"
            assert f"reached {asked}, but its journal has {kept} here" in document["message"]
            assert f"rota release {run.id}" in document["message"]
            # Released with the code still wrong, it is quarantined again, and no attempt is used up.
            now = change if times == 1 else None
            assert await run.release() == 1
        assert await run.result(timeout=60) == 1
    assert ran == ["charge"]


async def test_replay_mismatch_swallowed_by_code_still_quarantines_job(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    name = "charge"
    seen: list[ReplayMismatch] = []

    @app.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.step(name, lambda: None)
        except ReplayMismatch as error:
            seen.append(error)
            return "swallowed"
        await ctx.sleep(HOUR)
        return "done"

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        name = "other"
        await rota_harness.clock.advance(HOUR)
        await rota_harness.wait_for_event(JobQuarantined, job=run.id)
        assert (seen[0].actual, seen[0].expected) == ("step 'other'", "step 'charge'")
        assert await run.cancel() == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)


async def test_replay_accepts_additional_steps_at_end(rota_app: Rota) -> None:
    ran: list[str] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        await ctx.step("one", note, ran, "one")
        if ctx.attempt == 1:
            raise ValueError("not yet")
        await ctx.step("two", note, ran, "two")

    async with rota_app.worker():
        await (await work.options(retry=Retry(max_attempts=2, delay=0)).start()).result(timeout=60)
    assert ran == ["one", "two"]


def _quarantined(harness: Harness) -> list[JobQuarantined]:
    return [each for each in harness.events if isinstance(each, JobQuarantined)]
