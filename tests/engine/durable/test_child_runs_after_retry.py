"""Calls of a job that is retried, cancelled or returned to the queue: finished calls do not run again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from rota import Context, Retry, Rota, RunCancelled, RunFailed, Task
from rota.engine.worker.reconciler import ClaimReconciler
from rota.errors import ChildCallsChanged, ClaimLost
from rota.model.events import JobClaimed, JobFinished, JobRetried, JobReturned
from rota.testing import Harness
from support.queries import ONCE, TWICE, fetch, row_count_is, until


@pytest.mark.parametrize("limit", [None, 2])
async def test_parent_retry_runs_only_failed_child_runs_again(
    rota_app: Rota, limit: int | None
) -> None:
    ran: Counter[int] = Counter()

    @rota_app.task(retry=ONCE)
    async def once_broken(n: int) -> int:
        ran[n] += 1
        if n == 1 and ran[n] == 1:
            raise ValueError
        return n

    @rota_app.task(retry=TWICE)
    async def parent(ctx: Context) -> list[int]:
        found = await ctx.map(
            (once_broken.bind(n) for n in range(6)), concurrency=limit, return_exceptions=True
        )
        return [_result(each) for each in found]

    async with rota_app.worker():
        assert await (await parent.start()).result(timeout=60) == list(range(6))
    assert ran == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1}


def _result(found: int | RunFailed) -> int:
    if isinstance(found, RunFailed):
        raise found
    return found


async def test_parent_failing_after_child_runs_does_not_repeat_them(
    rota_app: Rota,
) -> None:
    ran: list[int] = []

    @rota_app.task
    async def note(n: int) -> int:
        ran.append(n)
        return n

    @rota_app.task(retry=TWICE)
    async def parent(ctx: Context) -> list[int]:
        found = await ctx.map(note.bind(n) for n in range(3))
        more = await ctx.run(note.bind(9))
        if ctx.attempt == 1:
            raise ValueError
        return [*found, more]

    async with rota_app.worker():
        assert await (await parent.start()).result(timeout=60) == [0, 1, 2, 9]
    assert sorted(ran) == [0, 1, 2, 9]


async def test_parent_retry_after_first_failure_runs_remaining_calls(
    rota_app: Rota,
) -> None:
    ran: Counter[int] = Counter()

    @rota_app.task(retry=ONCE)
    async def once_broken(n: int) -> int:
        ran[n] += 1
        if n == 0 and ran[n] == 1:
            raise ValueError
        return n

    @rota_app.task(retry=TWICE)
    async def parent(ctx: Context) -> list[int]:
        return await ctx.map((once_broken.bind(n) for n in range(4)), concurrency=1)

    async with rota_app.worker(concurrency=1):
        assert await (await parent.start()).result(timeout=60) == [0, 1, 2, 3]
    assert ran == {0: 2, 1: 1, 2: 1, 3: 1}


async def test_parent_retry_resumes_child_flow_at_failed_task(rota_app: Rota) -> None:
    ran: Counter[str] = Counter()
    flow = rota_app.flow("f")

    @flow.task
    async def first() -> int:
        ran["first"] += 1
        return 1

    @flow.task(retry=ONCE)
    async def second(first: int) -> int:
        ran["second"] += 1
        if ran["second"] == 1:
            raise ValueError
        return first + 1

    @rota_app.task(retry=TWICE)
    async def parent(ctx: Context) -> dict[str, int]:
        return await ctx.run(flow.bind())

    async with rota_app.worker():
        assert await (await parent.start()).result(timeout=60) == {"second": 2}
    assert ran == {"first": 1, "second": 2}


async def test_parent_retry_with_changed_calls_is_refused(
    rota_app: Rota, double: Task[[int], int]
) -> None:
    seen: list[BaseException] = []

    @rota_app.task(retry=TWICE)
    async def parent(ctx: Context, what: str) -> None:
        same = {"more": [1, 2], "arguments": [3]}
        numbers = [1] if ctx.attempt == 1 else same[what]
        try:
            await ctx.map(double.bind(n) for n in numbers)
        except ChildCallsChanged as error:
            seen.append(error)
            raise
        raise ValueError

    async with rota_app.worker():
        for what in ("more", "arguments"):
            with pytest.raises(RunFailed, match="must depend on its arguments alone"):
                await (await parent.start(what)).result(timeout=60)
    assert len(seen) == 2


async def test_flow_task_rerun_with_new_input_makes_new_child_runs(
    rota_app: Rota, double: Task[[int], int]
) -> None:
    flow = rota_app.flow("f")
    trouble = True

    @flow.task(retry=ONCE)
    async def first() -> int:
        if trouble:
            raise ValueError
        return 5

    @flow.task(when="all_done", retry=ONCE)
    async def second(ctx: Context, first: int | None) -> int:
        return await ctx.run(double.bind(first or 0))

    async with rota_app.worker():
        run = await flow.start()
        with pytest.raises(RunFailed):
            await run.result(timeout=60)
        trouble = False
        await run.retry()
        assert await run.result(timeout=60) == {"second": 10}


async def test_flow_task_retry_keeps_finished_child_runs(
    rota_app: Rota,
) -> None:
    flow = rota_app.flow("f")
    ran: list[int] = []
    trouble = True

    @rota_app.task
    async def note(n: int) -> int:
        ran.append(n)
        return n

    @flow.task(retry=ONCE)
    async def only(ctx: Context) -> int:
        found = await ctx.run(note.bind(1))
        if trouble:
            raise ValueError
        return found

    async with rota_app.worker():
        run = await flow.start()
        with pytest.raises(RunFailed):
            await run.result(timeout=60)
        trouble = False
        await run.retry()
        assert await run.result(timeout=60) == {"only": 1}
    assert ran == [1]


# Cancellation


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_parent_cancel_cancels_queued_and_running_child_runs(
    rota_harness: Harness, kind: str
) -> None:
    app = rota_harness.app
    running, stopped = asyncio.Event(), asyncio.Event()

    @app.task
    async def endless() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @app.task(queue="nobody")
    async def queued() -> None: ...

    calls = [endless.bind(), queued.bind()]
    if kind == "async":

        @app.task
        async def parent(ctx: Context) -> None:
            await ctx.map(calls)
    else:

        @app.task
        def parent(ctx: Context) -> None:
            ctx.sync.map(calls)

    run = await parent.start()
    async with app.worker(queues=["default"]):
        await asyncio.wait_for(running.wait(), 60)
        assert await run.cancel() == "requested"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        await asyncio.wait_for(stopped.wait(), 60)
        await until(lambda: row_count_is(app, "rota.claims", 0))
    assert await fetch(app.database.dsn or "", "select distinct state from rota.job_state") == [
        ("cancelled",)
    ]
    assert await fetch(
        app.database.dsn or "", "select state from rota.run_state where is_flow"
    ) == [("cancelled",)]
    await until(lambda: row_count_is(app, "rota.cancels", 0))


# Drain, and loss of the claim


def define(app: Rota, ran: Counter[int], gate: asyncio.Event) -> tuple[Any, Any]:
    """Return two parents of five children each: child 0 fails, and child 4 waits for the gate."""

    @app.task(queue="children", retry=ONCE)
    async def child(n: int) -> int:
        ran[n] += 1
        if n == 0:
            raise ValueError
        if n == 4:
            await gate.wait()
        return n

    @app.task
    async def parent(ctx: Context) -> int:
        found = await ctx.map((child.bind(n) for n in range(5)), return_exceptions=True)
        return len([each for each in found if not isinstance(each, RunFailed)])

    @app.task
    def plain(ctx: Context) -> int:
        found = ctx.sync.map([child.bind(n) for n in range(5)], return_exceptions=True)
        return len([each for each in found if not isinstance(each, RunFailed)])

    return parent, plain


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_parent_waiting_at_drain_is_returned_and_finishes_elsewhere(
    rota_harness: Harness, rota_dsn: str, kind: str
) -> None:
    """With one slot, the parent must not take the slot that its child on the second worker needs."""
    ran: Counter[int] = Counter()
    gate = asyncio.Event()
    app = rota_harness.app
    database = (await app.open()).database
    database.settings = replace(database.settings, drain_timeout=3600.0)
    parent, plain = define(app, ran, gate)
    async with Rota(rota_dsn, poll_interval=0.05, drain_timeout=0.2) as second:
        define(second, ran, gate)
        run = await (parent if kind == "async" else plain).start()

        async with second.worker(queues=["children"], concurrency=5):
            async with rota_harness.app.worker(queues=["default"], concurrency=1):
                await rota_harness.wait_for_event(JobClaimed, job=run.id)
                await until(lambda: row_count_is(second, "rota.outcomes", 4))
            await rota_harness.wait_for_event(JobReturned, job=run.id)
            assert not any(thread.name.startswith("rota_") for thread in threading.enumerate())

        gate.set()
        async with second.worker(concurrency=1):
            assert await run.result(timeout=60) == 4
    assert ran == {0: 1, 1: 1, 2: 1, 3: 1, 4: 2}, "only what was given back itself ran again"
    assert (await fetch(rota_dsn, f"select attempt from rota.outcomes where job = {run.id}")) == [
        (1,)
    ]


async def test_parent_returned_to_single_slot_does_not_block_child_runs(
    rota_harness: Harness, rota_dsn: str
) -> None:
    ran: Counter[int] = Counter()
    gate = asyncio.Event()
    gate.set()
    parent, _ = define(rota_harness.app, ran, gate)
    async with Rota(rota_dsn, poll_interval=0.05, drain_timeout=0.2) as second:
        define(second, ran, gate)
        run = await parent.start()
        async with rota_harness.app.worker(concurrency=1):
            await rota_harness.wait_for_event(JobFinished, state="failed")
        async with second.worker(concurrency=1):
            assert await second.run(run.id).result(timeout=60) == 4
    assert ran[0] == 1, "a parent that was only handed back tries nothing again"


async def test_parent_with_lost_claim_starts_no_child_run(
    rota_harness: Harness, rota_dsn: str, double: Task[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker holds the claim while the job runs, and no heartbeat has reported it yet."""
    monkeypatch.setattr(ClaimReconciler, "on_beat", lambda self, pulse: None)
    app = rota_harness.app
    go, seen = asyncio.Event(), []

    @app.task
    async def parent(ctx: Context) -> None:
        await go.wait()
        try:
            await ctx.map([double.bind(1)])
        except ClaimLost as error:
            seen.append(str(error))
            raise

    run = await parent.start()
    async with app.worker():
        await rota_harness.wait_for_event(JobClaimed, job=run.id)
        await fetch(
            rota_dsn,
            "with c as (update rota.claims set worker = worker + 1000 returning 1) select 1",
        )
        go.set()
        await until(lambda: _done(seen))
        assert "no longer held by this worker" in seen[0]
        assert await fetch(rota_dsn, "select count(*) from rota.runs") == [(0,)]
        assert await fetch(rota_dsn, "select count(*) from rota.jobs") == [(1,)]


async def _done(seen: list[str]) -> bool:
    return bool(seen)


# Many calls


@pytest.mark.slow
async def test_map_of_ten_thousand_calls_returns_all_results(
    rota_app: Rota, double: Task[[int], int]
) -> None:
    @rota_app.task
    async def parent(ctx: Context) -> int:
        return sum(await ctx.map(double.bind(n) for n in range(10_000)))

    began = time.perf_counter()
    async with rota_app.worker(concurrency=100):
        assert await (await parent.start()).result(timeout=60) == 99_990_000
    print(f"10,000 calls: over after {time.perf_counter() - began:.2f} s")


async def test_child_run_retries_do_not_count_for_parent(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task(retry=Retry(max_attempts=3, delay=0))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    @app.task(retry=ONCE)
    async def parent(ctx: Context) -> int:
        return await ctx.run(flaky.bind())

    async with app.worker(concurrency=1):
        assert await (await parent.start()).result(timeout=60) == 3
    assert len([event for event in rota_harness.events if isinstance(event, JobRetried)]) == 2
