"""Branches: concurrent coroutines of one job, some waiting while the rest work."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from rota import Context, Retry, Rota, StepFailed, Task
from rota.engine.durable import journal
from rota.engine.durable.journal import WorkerJournal
from rota.model.events import JobSuspended
from rota.testing import Harness
from support.durable_helpers import note, steps, wait_for_suspensions, wait_until_sleeping
from support.queries import TWICE, fetch, until

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


def suspension_count(harness: Harness) -> int:
    return len([each for each in harness.events if isinstance(each, JobSuspended)])


# Branches that work


async def test_branches_steps_run_concurrently_and_replay_their_results(rota_app: Rota) -> None:
    ran: list[int] = []
    all_there = asyncio.Barrier(5)

    async def part(n: int) -> int:
        ran.append(n)
        await asyncio.wait_for(all_there.wait(), 60)
        return n * n

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> list[int]:
        found = await asyncio.gather(*(ctx.step("part", part, n) for n in range(5)))
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return list(found)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == [0, 1, 4, 9, 16]
    assert ran == list(range(5))


async def test_branches_retry_runs_only_unfinished_steps(rota_app: Rota, rota_dsn: str) -> None:
    ran: list[str] = []
    all_there = asyncio.Barrier(3)

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> Any:
        async def breaks() -> str:
            ran.append("breaks")
            await all_there.wait()
            if ctx.attempt == 1:
                raise ValueError("not yet")
            return "whole"

        async def line(name: str) -> Any:
            first = await ctx.step(f"{name} one", note, ran, f"{name} one", name)
            second = await ctx.step(f"{name} two", note, ran, f"{name} two", name)
            await all_there.wait()
            return first + second

        return await asyncio.gather(line("a"), ctx.step("breaks", breaks), line("b"))

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == ["aa", "whole", "bb"]
    assert sorted(ran) == ["a one", "a two", "b one", "b two", "breaks", "breaks"]
    assert await fetch(rota_dsn, "select bool_or(main_branch) from rota.steps") == [(False,)]


async def test_branch_retry_replays_only_failures_that_code_handled(rota_app: Rota) -> None:
    ran: list[str] = []
    failed = asyncio.Event()

    def broken(name: str) -> str:
        ran.append(name)
        if ran.count(name) == 1:
            raise LookupError(name)
        return name

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> Any:
        async def lives_with_it() -> None:
            try:
                await ctx.step("mild", broken, "mild")
            except StepFailed:
                await failed.wait()
                await ctx.step("instead", note, ran, "instead")

        async def does_not() -> str:
            try:
                return await ctx.step("grave", broken, "grave")
            finally:
                failed.set()

        found = await asyncio.gather(lives_with_it(), does_not(), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return found[1]

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == "grave"
    assert sorted(ran) == ["grave", "grave", "instead", "mild"]


async def test_branches_in_task_group_suspend_and_resume_together(rota_harness: Harness) -> None:
    app = rota_harness.app
    ran: list[str] = []

    @app.task
    async def work(ctx: Context) -> Any:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_steps_around_sleep(ctx, "a", ran))
            second = group.create_task(_steps_around_sleep(ctx, "b", ran))
        return [first.result(), second.result()]

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == ["a", "b"]
    assert sorted(ran) == ["a after", "a before", "b after", "b before"]
    assert suspension_count(rota_harness) == 1


async def _steps_around_sleep(ctx: Context, name: str, ran: list[str]) -> str:
    await ctx.step(f"{name} before", note, ran, f"{name} before")
    await ctx.sleep(HOUR)
    await ctx.step(f"{name} after", note, ran, f"{name} after")
    return name


# A waiting branch beside a working branch


async def test_branch_sleeping_beside_running_step_keeps_job_running(
    rota_harness: Harness, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = rota_harness.app
    go = asyncio.Event()
    ran: list[str] = []
    pause, pauses = WorkerJournal.pause, 0

    async def counted_pause(self: WorkerJournal, seconds: float, *, idle: bool) -> None:
        nonlocal pauses
        await pause(self, seconds, idle=idle)
        pauses += 1

    async def paused(times: int) -> bool:
        return pauses >= times

    monkeypatch.setattr(WorkerJournal, "pause", counted_pause)

    @app.task
    async def work(ctx: Context) -> Any:
        async def long() -> str:
            ran.append("long")
            await go.wait()
            return "long"

        async def sleeps() -> str:
            await ctx.sleep(HOUR)
            return "slept"

        return await asyncio.gather(sleeps(), ctx.step("long", long))

    async with app.worker() as worker:
        run = await work.start()
        await until(lambda: _has_entry(rota_dsn, run.id, "sleep sleep"))
        await until(lambda: paused(4))  # after each the job could have been suspended
        assert suspension_count(rota_harness) == 0
        assert worker.session.slots.running == 1
        go.set()
        await wait_until_sleeping(run)
        assert worker.session.slots.running == 0
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == ["slept", "long"]
    assert ran == ["long"]


async def test_branches_waiting_resume_at_earliest_wake_up(
    rota_harness: Harness, rota_dsn: str
) -> None:
    """One branch sleeps, one waits for a signal, one for the retry of a step."""
    app = rota_harness.app
    order: list[str] = []
    tries = 0

    def charge() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise LookupError("busy")
        return "charged"

    @app.task
    async def work(ctx: Context) -> Any:
        async def sleeps() -> Any:
            await ctx.sleep(3 * HOUR)
            return await ctx.step("slept", note, order, "slept", 1)

        async def waits() -> Any:
            word = await ctx.wait_signal("word", str)
            return await ctx.step("heard", note, order, f"heard {word}", 2)

        async def charges() -> Any:
            patient = ctx.options(retry=Retry(max_attempts=2, delay=HOUR, jitter=0))
            return await ctx.step("told", note, order, await patient.step("charge", charge), 3)

        return await asyncio.gather(sleeps(), waits(), charges())

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(HOUR)
        await wait_for_suspensions(rota_harness, run, 2)
        assert order == ["charged"]
        await wait_until_sleeping(run)
        assert await run.signal("word", "now")
        await wait_for_suspensions(rota_harness, run, 3)
        assert order == ["charged", "heard now"]
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(2 * HOUR)
        assert await run.result(timeout=60) == [1, 2, 3]
    assert order == ["charged", "heard now", "slept"]
    assert tries == 2


async def test_branch_waiting_inline_receives_signal_without_suspension(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    go = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> Any:
        async def waits() -> Any:
            word = await ctx.wait_signal("word")
            go.set()
            return word

        return await asyncio.gather(waits(), ctx.step("long", go.wait))

    async with app.worker():
        run = await work.start()
        await until(lambda: _has_entry(rota_dsn, run.id, "wait word …"))
        assert await run.signal("word", "now")
        assert await run.result(timeout=60) == ["now", True]
    assert suspension_count(rota_harness) == 0


async def test_job_waiting_inline_occupies_no_slot(
    rota_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = rota_harness.app
    seen: list[int] = []
    go = asyncio.Event()

    async def gated_sleep(seconds: float) -> None:
        await go.wait()
        await asyncio.sleep(seconds)

    @app.task
    async def work(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep(0.3), ctx.sleep(0.3))

    @app.task
    async def other() -> None:
        seen.append(worker.session.slots.running)

    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.5)
    # The inline waits of the job last until `go` is set.
    journal_asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": gated_sleep})
    monkeypatch.setattr(journal, "asyncio", journal_asyncio)
    async with app.worker(concurrency=1) as worker:
        run = await work.start()
        await until(lambda: _is_parked(worker))
        await (await other.start()).result(timeout=60)
        assert await run.status() == "running"
        go.set()
        await run.result(timeout=60)
    assert seen == [1]
    assert suspension_count(rota_harness) == 0


async def test_branch_created_before_sleep_runs_before_suspension(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    ran: list[str] = []

    @app.task
    async def work(ctx: Context) -> Any:
        async def branch() -> Any:
            return await ctx.step("branch", note, ran, "branch", 1)

        beside = asyncio.create_task(branch())
        await ctx.sleep(HOUR)
        return await beside

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        assert ran == ["branch"]
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == 1
    assert ran == ["branch"]


async def test_branches_suspending_together_write_pending_entries(
    rota_harness: Harness, rota_dsn: str
) -> None:
    """Pending journal entries are written, whichever branch suspends the job first."""
    app = rota_harness.app
    seen: list[Any] = []

    @app.task
    async def work(ctx: Context) -> None:
        async def sleeps() -> None:
            await ctx.sleep(HOUR)

        async def asks() -> None:
            await asyncio.sleep(0.02)
            seen.append(ctx.uuid())
            await asyncio.sleep(60)

        talker = asyncio.create_task(asks())
        # Without gather(), which would cancel the remaining branches when the first one suspends.
        await asyncio.wait([asyncio.create_task(sleeps()) for _ in range(10)])
        talker.cancel()

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        assert "value uuid" in await steps(rota_dsn, run)
        await rota_harness.clock.advance(HOUR)
        await run.result(timeout=60)


# Calls beside a sleeping branch


async def test_branch_child_run_finishes_while_other_branch_waits(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    go = asyncio.Event()
    seen: list[int] = []

    @app.task
    async def slow() -> int:
        await go.wait()
        return 1

    @app.task
    async def work(ctx: Context) -> Any:
        async def calls() -> Any:
            found = await ctx.run(slow.bind())
            return await ctx.step("after", note, seen, found, found)

        async def waits() -> Any:
            return await ctx.wait_signal("word")

        return await asyncio.gather(calls(), waits())

    async with app.worker():
        run = await work.start()
        await until(lambda: _has_entry(rota_dsn, run.id, "wait word …"))
        go.set()
        await until(lambda: _is_equal(seen, [1]))
        await wait_until_sleeping(run)
        await run.signal("word", 2)
        assert await run.result(timeout=60) == [1, 2]


@pytest.mark.parametrize("other", ["calls", "sleep"])
async def test_branches_with_one_slot_finish_all_child_runs(
    rota_app: Rota, double: Task[[int], int], other: str
) -> None:
    @rota_app.task
    async def slow(n: int) -> int:
        await asyncio.sleep(0.1)
        return n

    @rota_app.task
    async def work(ctx: Context) -> Any:
        beside = ctx.map([double.bind(1)]) if other == "calls" else ctx.sleep(0.03)
        found = await asyncio.gather(beside, ctx.map(slow.bind(n) for n in range(3)))
        return found[1]

    async with rota_app.worker(concurrency=1):
        assert await (await work.start()).result(timeout=60) == [0, 1, 2]


async def _has_entry(dsn: str, job: int, what: str) -> bool:
    return what in await steps(dsn, job)


async def _is_equal(found: Any, wanted: Any) -> bool:
    return bool(found == wanted)


async def _is_parked(worker: Any) -> bool:
    return bool(worker.session.slots._parked)
