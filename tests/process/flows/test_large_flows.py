"""Flows of the largest size and of great depth."""

from __future__ import annotations

import time

import pytest

from rota import RunFailed
from rota.model.events import JobFinished
from rota.testing import Harness
from support.queries import ONCE, fetch, nothing

pytestmark = pytest.mark.timeout(600)  # the work is large, and the machine may be slow


@pytest.mark.slow
async def test_flow_ten_thousand_wide_succeeds(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow = app.flow("wide")

    async def first() -> int:
        return 1

    async def part(first: int) -> int:
        return first

    async def last(first: int) -> int:
        return first

    flow.task(first)
    parts = [flow.task(part, name=f"p{number}") for number in range(9_998)]
    flow.task(last, after=parts)

    began = time.perf_counter()
    run = await flow.start()
    started = time.perf_counter() - began
    async with app.worker(concurrency=100):
        assert await run.result(timeout=500) == {"last": 1}
    took = time.perf_counter() - began

    print(f"10,000 wide: started in {started:.2f} s, over after {took:.2f} s")


@pytest.mark.slow
async def test_flow_thousand_deep_runs_or_is_skipped(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow = app.flow("deep")

    async def step() -> None: ...

    async def begin(fail: bool) -> None:
        if fail:
            raise ValueError

    flow.task(begin, name="n0", retry=ONCE)
    for number in range(1, 1000):
        flow.task(step, name=f"n{number}", after=[f"n{number - 1}"])

    async with app.worker():
        began = time.perf_counter()
        assert await (await flow.start(fail=False)).result(timeout=500) == {"n999": None}
        ran = time.perf_counter() - began
        began = time.perf_counter()
        with pytest.raises(RunFailed, match="ValueError"):
            await (await flow.start(fail=True)).result(timeout=500)
        skipped = time.perf_counter() - began
    print(f"1,000 deep: ran in {ran:.2f} s, skipped in {skipped:.2f} s")
    assert await fetch(
        app.database.dsn or "", "select count(*) from rota.outcomes where state = 'skipped'"
    ) == [(999,)]


async def test_flow_jobs_ending_together_run_each_successor_once(rota_harness: Harness) -> None:
    """Several workers run one small graph after another, and no job waits for a poll."""
    app = rota_harness.app
    flow = app.flow("f")
    flow.task(nothing, name="a")
    for number in range(4):
        flow.task(nothing, name=f"b{number}", after=["a"])
    flow.task(nothing, name="c", after=[f"b{number}" for number in range(4)])

    async with app.worker(concurrency=3), app.worker(concurrency=3):
        runs = await app.start_many([flow.bind() for _ in range(40)])
        for run in runs:
            await run.result(timeout=500)
    done = [event for event in rota_harness.events if isinstance(event, JobFinished)]
    assert len(done) == len({event.job for event in done}) == 240
