"""Calls of a job: they run as jobs of their own, and the caller waits for them without a slot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import ArgumentError, Context, Flow, Rota, RunCancelled, RunFailed, Task
from rota.testing import Harness
from support.queries import ONCE, fetch, row_count_is, until

# Results


async def test_child_runs_return_results_in_call_order(
    rota_app: Rota, double: Task[[int], int], pair: Flow
) -> None:
    @rota_app.task
    async def parent(ctx: Context) -> list[Any]:
        return [
            await ctx.map(double.bind(n) for n in range(20)),
            await ctx.run(double.bind(21)),
            await ctx.run(pair.bind(n=3)),
            await ctx.map([double.bind(1), pair.bind(n=1), double.bind(2), pair.bind(n=2)]),
            await ctx.map([]),
        ]

    async with rota_app.worker():
        assert await (await parent.start()).result(timeout=60) == [
            [2 * n for n in range(20)],
            42,
            {"two": 40},
            [2, {"two": 20}, 4, {"two": 30}],
            [],
        ]


async def test_child_runs_of_sync_task_return_results(
    rota_app: Rota, double: Task[[int], int], pair: Flow
) -> None:
    @rota_app.task
    def parent(ctx: Context) -> list[Any]:
        return [
            ctx.sync.map([double.bind(n) for n in range(5)], concurrency=2),
            ctx.sync.run(pair.bind(n=1)),
        ]

    async with rota_app.worker(concurrency=1):
        assert await (await parent.start()).result(timeout=60) == [[0, 2, 4, 6, 8], {"two": 20}]


async def test_child_runs_nested_with_one_slot_do_not_deadlock(
    rota_app: Rota, double: Task[[int], int]
) -> None:
    """Two levels of calls, async and sync: a waiting caller holds no slot."""

    @rota_app.task
    async def middle(ctx: Context, n: int) -> int:
        return sum(await ctx.map([double.bind(n), double.bind(n + 1)]))

    @rota_app.task
    def plain(ctx: Context, n: int) -> int:
        return sum(ctx.sync.map([double.bind(n), double.bind(n + 1)]))

    @rota_app.task
    async def top(ctx: Context) -> list[int]:
        return await ctx.map([middle.bind(1), plain.bind(2), middle.bind(3)])

    async with rota_app.worker(concurrency=1):
        assert await (await top.start()).result(timeout=60) == [6, 10, 14]


async def test_child_runs_with_more_parents_than_slots_all_finish(
    rota_app: Rota, double: Task[[int], int]
) -> None:
    @rota_app.task
    async def parent(ctx: Context, n: int) -> int:
        return sum(await ctx.map(double.bind(n + each) for each in range(3)))

    async with rota_app.worker(concurrency=2):
        runs = await rota_app.start_many([parent.bind(n) for n in range(30)])
        assert [await run.result(timeout=60) for run in runs] == [6 * n + 6 for n in range(30)]


async def test_child_runs_of_flow_task_return_results(
    rota_app: Rota, double: Task[[int], int]
) -> None:
    flow = rota_app.flow("f")

    @flow.task
    async def spread(ctx: Context, many: int) -> list[int]:
        return await ctx.map(double.bind(n) for n in range(many))

    @flow.task
    async def total(spread: list[int]) -> int:
        return sum(spread)

    async with rota_app.worker(concurrency=1):
        assert await (await flow.start(many=5)).result(timeout=60) == {"total": 20}


@pytest.mark.parametrize("limit", [1, 3])
async def test_map_concurrency_limits_running_child_runs(rota_app: Rota, limit: int) -> None:
    now = most = 0

    @rota_app.task
    async def busy(n: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002 * (n % 3))
        now -= 1
        return n

    @rota_app.task
    async def parent(ctx: Context) -> list[int]:
        return await ctx.map((busy.bind(n) for n in range(20)), concurrency=limit)

    async with rota_app.worker(concurrency=50), rota_app.worker(concurrency=50):
        assert await (await parent.start()).result(timeout=60) == list(range(20))
    assert most == limit


# Calls that are refused


async def test_map_invalid_call_raises_argument_error(
    rota_app: Rota, double: Task[[int], int], pair: Flow
) -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([3], {}, r"take calls, made with task\.bind\(…\), not int"),
        ([double.options(key="k").bind(1)], {}, "cannot have a key, a time or an expiry"),
        ([double.options(delay=3).bind(1)], {}, "cannot have a key, a time or an expiry"),
        ([pair.options(expires=3).bind(n=1)], {}, "cannot have a key, a time or an expiry"),
        ([double.bind(1)], {"concurrency": 0}, "at least 1, not 0"),
        (
            [pair.bind(n=1)],
            {"concurrency": 2},
            "concurrency is for calls of tasks, and 'pair' is a flow",
        ),
        (
            [double.bind(1)] * 10_001,
            {},
            "10,001 calls are more than the 10,000 one job can wait for",
        ),
    ]

    @rota_app.task(retry=ONCE)
    async def parent(ctx: Context) -> None:
        for calls, how, message in wrong:
            with pytest.raises(ArgumentError, match=message):
                await ctx.map(calls, **how)

    async with rota_app.worker():
        await (await parent.start()).result(timeout=60)
    assert await fetch(rota_app.database.dsn or "", "select count(*) from rota.runs") == [(0,)]


async def test_sync_run_in_async_task_raises_runtime_error(
    rota_app: Rota, double: Task[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocking call would deadlock the worker's event loop."""

    class Never:
        def set(self, _: Any) -> None:
            raise AssertionError("this would never have ended")

    monkeypatch.setattr("rota.engine.execution.job_backend._waiting_thread", Never())

    @rota_app.task(retry=ONCE)
    async def parent(ctx: Context) -> int:
        return ctx.sync.run(double.bind(1))

    async with rota_app.worker():
        with pytest.raises(RunFailed, match="RuntimeError"):
            await (await parent.start()).result(timeout=60)


async def test_context_without_worker_refuses_child_run(
    double: Task[[int], int],
) -> None:
    with pytest.raises(RuntimeError, match="belongs to no worker"):
        await Context(1, 1, "t", "q", 1).run(double.bind(1))


# Failed calls


async def test_map_first_failure_cancels_other_calls_and_is_raised(rota_harness: Harness) -> None:
    app = rota_harness.app
    running, stopped, ran = asyncio.Event(), asyncio.Event(), []

    @app.task
    async def endless() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @app.task(retry=ONCE)
    async def breaks() -> None:
        await running.wait()
        raise LookupError("no such thing")

    @app.task(queue="elsewhere")
    async def queued() -> None:
        ran.append("queued")

    @app.task(retry=ONCE)
    async def parent(ctx: Context) -> str:
        with pytest.raises(RunFailed) as failure:
            await ctx.map([queued.bind(), endless.bind(), breaks.bind()])
        return f"{type(failure.value).__name__} {failure.value.kind}: {failure.value.reason}"

    async with app.worker(queues=["default"]):
        assert await (await parent.start()).result(timeout=60) == (
            "RunFailed LookupError: no such thing"
        )
        await asyncio.wait_for(stopped.wait(), 60)
        await until(lambda: row_count_is(app, "rota.claims", 0))
    async with app.worker(queues=["elsewhere"]):
        await asyncio.sleep(0)
    assert ran == []
    assert sorted(
        await fetch(
            app.database.dsn or "", "select task, state from rota.job_state where task <> 'parent'"
        )
    ) == [("breaks", "failed"), ("endless", "cancelled"), ("queued", "cancelled")]


async def test_map_return_exceptions_returns_failures(
    rota_app: Rota, double: Task[[int], int], pair: Flow
) -> None:
    broken = rota_app.flow("broken")

    @broken.task(retry=ONCE)
    async def falls(n: int) -> int:
        raise KeyError(n)

    @rota_app.task(retry=ONCE)
    async def breaks() -> int:
        raise LookupError("no such thing")

    @rota_app.task
    async def parent(ctx: Context) -> list[Any]:
        calls: list[Any] = [double.bind(1), breaks.bind(), pair.bind(n=1), broken.bind(n=2)]
        found = await ctx.map(calls, return_exceptions=True)
        return [each.kind if isinstance(each, RunFailed) else each for each in found]

    async with rota_app.worker():
        assert await (await parent.start()).result(timeout=60) == [
            2,
            "LookupError",
            {"two": 20},
            "KeyError",
        ]


async def test_child_run_cancelled_raises_run_cancelled_in_parent(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task(queue="nobody")
    async def never() -> None: ...

    @app.task(retry=ONCE)
    async def parent(ctx: Context) -> str:
        try:
            await ctx.run(never.bind())
        except RunCancelled:
            return "cancelled"
        raise AssertionError

    run = await parent.start()
    async with app.worker(queues=["default"]):
        await until(lambda: row_count_is(app, "rota.runs", 1))
        [(calls,)] = await fetch(app.database.dsn or "", "select id from rota.runs")
        assert await app.run(calls).cancel() == "cancelled"
        assert await run.result(timeout=60) == "cancelled"
