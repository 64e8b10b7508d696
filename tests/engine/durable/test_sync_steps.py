"""Steps that are sync functions, and sync durable code in threads, with `ctx.sync`."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from rota import Context, Retry, Rota, RunCancelled, RunFailed, StepFailed
from rota.engine.durable import step
from rota.engine.durable.journal import WorkerJournal
from rota.model.events import JobQuarantined
from rota.testing import Harness
from support.durable_helpers import note, steps, wait_for_suspensions, wait_until_sleeping
from support.queries import ONCE, TWICE, fetch, until

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


# Sync steps of a coroutine


async def test_sync_step_runs_in_thread_beside_event_loop(rota_app: Rota) -> None:
    here = threading.get_ident()
    go = threading.Event()

    def slow() -> bool:
        assert go.wait(60)
        return threading.get_ident() != here

    @rota_app.task
    async def work(ctx: Context) -> bool:
        return await ctx.step("slow", slow)

    async with rota_app.worker():
        run = await work.start()
        await asyncio.sleep(0.05)
        go.set()
        assert await run.result(timeout=60) is True


async def test_sync_step_raising_stop_iteration_fails(rota_app: Rota) -> None:
    """A future cannot carry StopIteration: without a conversion the awaiting code would hang."""

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        with pytest.raises(StepFailed) as failed:
            await ctx.step("next", next, iter([]))
        return f"{failed.value.kind}: {failed.value.reason}"

    @rota_app.task(retry=ONCE)
    def plain(ctx: Context) -> str:
        with pytest.raises(StepFailed) as failed:
            ctx.sync.step("next", next, iter([]))
        return f"{failed.value.kind}: {failed.value.reason}"

    async with rota_app.worker():
        for task in (work, plain):
            run = await task.start()
            assert await run.result(timeout=60) == "RuntimeError: it raised StopIteration"


async def test_sync_steps_of_many_jobs_run_concurrently(rota_app: Rota) -> None:
    meet = threading.Barrier(20)

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> int:
        return await ctx.step("meet", meet.wait, 60)

    async with rota_app.worker(concurrency=20):
        runs = await rota_app.start_many([work.bind() for _ in range(20)])
        assert sorted([await run.result(timeout=60) for run in runs]) == list(range(20))


# Sync durable code


async def test_sync_task_steps_sleeps_and_signals_are_durable(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app
    ran: list[str] = []
    threads: set[bool] = set()

    @app.task(retry=TWICE)
    def work(ctx: Context) -> list[Any]:
        mine = threading.get_ident()
        blocking = ctx.sync

        def step(name: str) -> str:
            ran.append(name)
            threads.add(threading.get_ident() == mine)
            return name

        async def coroutine() -> str:
            ran.append("coroutine")
            return "coroutine"

        found: list[Any] = [
            blocking.step("one", step, "one"),
            blocking.options(timeout=5).step("two", step, "two"),
            blocking.step("async", coroutine),
            str(ctx.uuid()),
            ctx.version("x"),
        ]
        blocking.sleep(HOUR)
        found.append(blocking.wait_signal("word", int))
        blocking.sleep_until(ctx.now())
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return [*found, str(ctx.uuid())]

    async with app.worker(concurrency=1) as worker:
        run = await work.start()
        await wait_until_sleeping(run)
        assert worker.session.slots.running == 0
        await rota_harness.clock.advance(HOUR)
        await wait_for_suspensions(rota_harness, run, 2)
        await wait_until_sleeping(run)
        await run.signal("word", 7)
        found = await run.result(timeout=60)
    assert found[:3] == ["one", "two", "coroutine"]
    assert found[4:6] == [True, 7]
    assert ran == ["one", "two", "coroutine"]
    assert threads == {True}
    kept = await steps(rota_dsn, run)
    assert kept[:6] == [
        "step one",
        "step two",
        "step async",
        "value uuid",
        "version x",
        "sleep sleep",
    ]
    assert "wait word" in kept


async def test_sync_step_failing_is_retried_and_raises_step_failed(rota_app: Rota) -> None:
    tries: list[int] = []

    def charge(enough: int) -> str:
        tries.append(1)
        if len(tries) < enough:
            raise LookupError(f"try {len(tries)}")
        return "charged"

    @rota_app.task(retry=ONCE)
    def work(ctx: Context) -> list[str]:
        how = ctx.sync.options(retry=Retry(max_attempts=2, delay=0))
        with pytest.raises(StepFailed, match="try 2"):
            how.step("charge", charge, 4)
        return [how.step("charge", charge, 4)]

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == ["charged"]


async def test_sync_task_swallowing_suspension_still_sleeps(rota_harness: Harness) -> None:
    app = rota_harness.app
    ran: list[str] = []

    @app.task(retry=ONCE)
    def work(ctx: Context) -> str:
        try:
            ctx.sync.sleep(HOUR)
        except Exception:
            ran.append("an Exception")  # not reached: SuspendAttempt is no Exception
        except BaseException:
            ran.append("swallowed")
        return "done"

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await rota_harness.clock.advance(HOUR)
        assert await run.result(timeout=60) == "done"
    assert ran == ["swallowed"]


async def test_sync_task_with_changed_code_is_quarantined(rota_harness: Harness) -> None:
    app = rota_harness.app
    name = "charge"

    @app.task
    def work(ctx: Context) -> int:
        ctx.sync.step(name, lambda: None)
        ctx.sync.sleep(HOUR)
        return ctx.attempt

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        name = "other"
        await rota_harness.clock.advance(HOUR)
        await rota_harness.wait_for_event(JobQuarantined, job=run.id)
        name = "charge"
        assert await run.release() == 1
        assert await run.result(timeout=60) == 1


async def test_sync_task_ending_before_its_journal_is_quarantined(rota_harness: Harness) -> None:
    app = rota_harness.app
    short = False

    @app.task
    def work(ctx: Context) -> None:
        if not short:
            ctx.sync.step("charge", lambda: None)
            ctx.sync.sleep(HOUR)

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        short = True
        await rota_harness.clock.advance(HOUR)
        await rota_harness.wait_for_event(JobQuarantined, job=run.id)


# Timeouts and stops


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
async def test_sync_step_beyond_timeout_fails_and_is_rolled_back(
    rota_app: Rota, rota_dsn: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread cannot be stopped, but its writes are rolled back."""
    limits: list[asyncio.Timeout] = []

    def owned_timeout(seconds: float) -> asyncio.Timeout:
        """Return a timeout that ends when the test ends it."""
        limits.append(asyncio.timeout(None))
        return limits[-1]

    step_asyncio = SimpleNamespace(**{**vars(asyncio), "timeout": owned_timeout})
    monkeypatch.setattr(step, "asyncio", step_asyncio)
    loop = asyncio.get_running_loop()

    def end_timeout() -> None:
        [limit] = limits
        loop.call_soon_threadsafe(lambda: limit.reschedule(loop.time()))
        running, deadline = step.current_step.get(), time.monotonic() + 60
        assert running is not None
        while not running._has_ended:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    async with await psycopg.AsyncConnection.connect(rota_dsn, autocommit=True) as connection:
        await connection.execute("create table note (n int)")

    wrote: list[int] = []

    def slow(ctx: Context) -> None:
        with ctx.sync.transaction() as connection:
            connection.execute("insert into note values (1)")
        end_timeout()
        with ctx.sync.transaction() as connection:
            connection.execute("insert into note values (2)")
        wrote.append(2)

    if kind == "thread":

        @rota_app.task(name="work", retry=ONCE)
        def work(ctx: Context) -> str:
            with pytest.raises(StepFailed) as failed:
                ctx.sync.options(timeout=0.05).step("slow", slow, ctx)
            ctx.sync.step("after", lambda: None)
            return failed.value.kind
    else:

        @rota_app.task(name="work", retry=ONCE)
        async def work(ctx: Context) -> str:
            with pytest.raises(StepFailed) as failed:
                await ctx.options(timeout=0.05).step("slow", slow, ctx)
            await ctx.step("after", lambda: None)
            return failed.value.kind

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == "rota.errors.TaskTimeout"
        await until(lambda: _has(wrote, 2))
    assert await fetch(rota_dsn, "select n from note") == []
    assert await steps(rota_dsn, run) == ["step slow", "step after"]


async def test_sync_task_cancelled_during_sleep_or_step_stops(rota_harness: Harness) -> None:
    app = rota_harness.app
    seen: list[str] = []
    begun: list[str] = []

    @app.task
    def work(ctx: Context, how: str) -> None:
        try:
            begun.append(how)
            if how == "lingers":
                while True:
                    ctx.sync.sleep(0.04)
            else:
                ctx.sync.step("until told", _wait_until_cancelled, ctx)
                ctx.sync.step("never", seen.append, "never")
        finally:
            seen.append(how)

    async with app.worker():
        for how in ("lingers", "step"):
            run = await work.start(how)
            await until(lambda how=how: _has(begun, how))
            assert await run.cancel() in ("requested", "cancelled")
            with pytest.raises(RunCancelled):
                await run.result(timeout=60)
            await until(lambda how=how: _has(seen, how))
    assert seen == ["lingers", "step"]


async def test_sync_task_returned_at_drain_resumes_at_next_step(
    rota_dsn: str,
) -> None:
    ran: list[str] = []
    async with Rota(rota_dsn, drain_timeout=0.05, poll_interval=0.05) as app:

        @app.task
        def work(ctx: Context) -> str:
            ctx.sync.step("one", note, ran, "one")
            if ran == ["one"] and not stop.is_set():
                begun.set()
                while not ctx.cancelled:
                    time.sleep(0.01)
                ctx.sync.step("no more", note, ran, "no more")
            ctx.sync.step("two", note, ran, "two")
            return ",".join(ran)

        begun, stop = threading.Event(), threading.Event()
        run = await work.start()
        async with app.worker():
            await until(lambda: _is_set(begun))
        stop.set()
        async with app.worker():
            assert await run.result(timeout=60) == "one,two"


async def test_sync_step_in_async_task_is_refused(rota_app: Rota) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        ctx.sync.step("x", lambda: None)

    async with rota_app.worker():
        with pytest.raises(RunFailed, match="would stop the worker's own loop"):
            await (await work.start()).result(timeout=60)


def _wait_until_cancelled(ctx: Context) -> None:
    while not ctx.cancelled:
        time.sleep(0.01)


async def _has(seen: list[Any], what: Any) -> bool:
    return what in seen


async def _is_set(event: threading.Event) -> bool:
    return event.is_set()
