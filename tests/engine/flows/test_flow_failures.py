"""Runs of flows that fail, and are retried, forked or cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import ArgumentError, Context, Failure, Retry, Run, RunCancelled, RunFailed
from rota.errors import RunNotFound
from rota.model.events import JobClaimed
from rota.testing import Harness
from support.queries import ONCE, states


async def test_flow_failure_names_job_and_reaches_on_failure(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    flow = app.flow("f")
    heard: list[Failure] = []

    @flow.task(retry=ONCE)
    async def breaks() -> None:
        raise LookupError("the file is gone")

    @flow.task(after=[breaks])
    async def never() -> None:
        raise AssertionError

    @flow.task
    async def fine() -> int:
        return 1

    @flow.on_failure
    async def tell(ctx: Context) -> str:
        heard.extend(await ctx.failures())
        return "told"

    run = await flow.start()
    await rota_harness.run_until_idle()

    with pytest.raises(RunFailed, match=r"run \d+ \(f\) failed: job \d+ \(f\.breaks\)") as failure:
        await run.result(timeout=60)
    assert (failure.value.kind, failure.value.reason) == ("LookupError", "the file is gone")
    assert "the file is gone" in failure.value.traceback
    assert [(each.task, each.kind, each.reason) for each in heard] == [
        ("breaks", "LookupError", "the file is gone")
    ]
    assert await states(app, run.id) == {
        "breaks": "failed",
        "never": "skipped",
        "fine": "succeeded",
        "tell": "succeeded",
    }


async def test_on_failure_without_failure_is_skipped_and_not_in_result(
    rota_harness: Harness,
) -> None:
    flow = rota_harness.app.flow("f")

    @flow.task
    async def fine() -> int:
        return 1

    @flow.on_failure
    def tell(ctx: Context) -> None:
        raise AssertionError

    run = await flow.start()
    await rota_harness.run_until_idle()

    assert await run.result(timeout=60) == {"fine": 1}
    assert (await states(rota_harness.app, run.id))["tell"] == "skipped"


async def test_on_failure_sync_handler_failing_keeps_run_error(
    rota_harness: Harness,
) -> None:
    flow = rota_harness.app.flow("f")
    heard: list[str] = []

    @flow.task(retry=ONCE)
    async def breaks() -> None:
        raise LookupError

    @flow.on_failure(retry=ONCE)
    def tell(ctx: Context) -> None:
        heard.extend(each.task for each in ctx.sync.failures())
        raise OSError

    run = await flow.start()
    await rota_harness.run_until_idle()

    assert heard == ["breaks"]
    with pytest.raises(RunFailed, match="LookupError"):
        await run.result(timeout=60)


async def test_flow_task_succeeding_on_retry_releases_successor(
    rota_harness: Harness,
) -> None:
    flow = rota_harness.app.flow("f")
    tried: list[int] = []

    @flow.task(retry=Retry(max_attempts=3, delay=0))
    async def flaky(ctx: Context) -> int:
        tried.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    @flow.task
    async def then(flaky: int) -> int:
        return flaky

    run = await flow.start()
    async with rota_harness.app.worker():
        assert await run.result(timeout=60) == {"then": 3}
    assert tried == [1, 2, 3]


async def test_flow_retry_resumes_at_failed_task(rota_harness: Harness) -> None:
    flow = rota_harness.app.flow("f")
    ran: list[str] = []
    trouble = True

    @flow.task
    async def first() -> int:
        ran.append("first")
        return 1

    @flow.task(retry=ONCE)
    async def second(first: int) -> int:
        ran.append("second")
        if trouble:
            raise ValueError
        return first + 1

    @flow.task
    async def third(second: int) -> int:
        ran.append("third")
        return second + 1

    run = await flow.start()
    async with rota_harness.app.worker():
        with pytest.raises(RunFailed):
            await run.result(timeout=60)
        trouble = False
        await run.retry()
        assert await run.result(timeout=60) == {"third": 3}
        with pytest.raises(Exception, match="is succeeded; only a failed"):
            await run.retry()
    assert ran == ["first", "second", "second", "third"]


async def test_flow_fork_runs_from_task_and_keeps_first_run(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    flow = app.flow("f")
    ran: list[str] = []

    @flow.task
    async def first(n: int) -> int:
        ran.append("first")
        return n

    @flow.task
    async def second(first: int) -> int:
        ran.append("second")
        return first + len(ran)

    run = await flow.start(n=10)
    await rota_harness.run_until_idle()
    before = await run.result(timeout=60)
    forked = await app.fork(run, from_=second)
    by_name: Run[Any] = await app.fork(run.id, from_="first")
    await rota_harness.run_until_idle()

    assert ran == ["first", "second", "second", "first", "second"] or len(ran) == 5
    assert (await forked.result(timeout=60))["second"] != before["second"]
    assert (await by_name.result(timeout=60))["second"] > 10
    assert await run.result(timeout=60) == before
    with pytest.raises(ArgumentError, match=r"run \d+ of flow 'f' has no task 'third'"):
        await app.fork(run, from_="third")
    with pytest.raises(RunNotFound):
        await app.fork(10**9, from_="first")


# Cancellation


async def test_flow_cancel_stops_running_job_and_cancels_waiting_job(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    flow = app.flow("f")
    stopped = asyncio.Event()

    @flow.task
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @flow.task(after=[endless])
    async def never() -> None:
        raise AssertionError

    run = await flow.start()
    async with app.worker():
        await rota_harness.wait_for_event(JobClaimed)
        assert await run.cancel() == "requested"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        assert stopped.is_set()
    assert await states(app, run.id) == {"endless": "cancelled", "never": "cancelled"}
    assert await run.cancel() == "cancelled"
