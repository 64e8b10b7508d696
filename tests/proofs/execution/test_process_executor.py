"""Many isolated jobs that crash, time out or are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rota.engine.execution.executor import StopReason
from rota.engine.execution.process.executor import ProcessExecutor
from support import isolated_tasks as isolated
from support.workbench import Workbench


@pytest.fixture
async def bench() -> AsyncIterator[Workbench]:
    async with Workbench(ProcessExecutor, max_processes=2) as bench:
        yield bench


async def test_executor_deaths_timeouts_and_stops_end_each_job_once(bench: Workbench) -> None:
    """Process deaths, deadlines and cancellations at the same time."""
    for _ in range(6):
        jobs = [
            bench.start(isolated.add, a=1, b=2),
            bench.start(isolated.exit_process, code=1),
            bench.start(isolated.awaited_pid, 0.02, seconds=0.02),
        ]
        await asyncio.sleep(0.02)
        bench.stop(jobs[0], StopReason.CANCELLED)
        for job in jobs:
            await bench.outcome(job)
    assert len(bench.ended) == 18  # a second outcome for a job raises
