"""Sequence of the demo: starts work, kills a worker and observes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from rota.cli import output
from rota.cli.demo import kill_worker, tasks
from rota.cli.demo.counters import DemoCounters
from rota.cli.demo.environment import DemoEnvironment
from rota.cli.demo.flows import DemoFlows
from rota.cli.demo.state import DemoState, DemoWorker, ProgressRow
from rota.model.schedule_view import Schedule
from rota.store.read import coordination, live
from rota.store.read import runs as read_runs
from rota.store.read import schedules as read_schedules
from rota.store.read.coordination import ServiceRow
from rota.store.read.live import RunningJobRow
from rota.store.read.runs import WorkerDetailRow

WAVE_JOBS = 2000
"""Jobs started in one call."""

WAVE_INTERVAL_SECONDS = 2.5
"""Time from one wave to the next. The pause leaves the machine time for the dashboard."""

POLL_SECONDS = 0.4
PING_INTERVAL_SECONDS = 0.5
MAX_OVERTIME_SECONDS = 20.0
"""Extra time until the killed worker is replaced and no job is open."""

TOTALS_TIMEOUT_SECONDS = 2.0
"""Time limit for collecting the totals at the end."""


class Scenario:
    def __init__(
        self, environment: DemoEnvironment, state: DemoState, counters: DemoCounters
    ) -> None:
        self._environment = environment
        self._state = state
        self._counters = counters
        self._time_scale = min(max(state.seconds / 60, 0.05), 1.0)
        self._flows = DemoFlows(state, counters, self._time_scale)
        self._wave_row = ProgressRow("plain jobs")
        self._ping_row = ProgressRow("one by one")
        self._monitor_row = ProgressRow(tasks.MONITOR)
        self._schedule_row = ProgressRow("schedule")

    async def run(self) -> None:
        """Run the whole demo."""
        self._database = (await tasks.app.open()).database
        await asyncio.gather(self._environment.add_worker(), self._environment.add_worker())
        self._state.began = began = time.monotonic()
        deadline = began + self._state.seconds
        kill_task = asyncio.create_task(self._kill_worker())
        running = [
            kill_task,
            *(
                asyncio.create_task(each)
                for each in (
                    self._observe(),
                    self._flows.start(deadline),
                    self._start_waves(deadline - 1.0 - self._time_scale),
                    self._ping(),
                )
            ),
        ]
        try:
            await _run_for(running, self._state.seconds)
            # On a slow machine, wait until the recovery is complete.
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_OVERTIME_SECONDS):
                    await kill_task
                    await self._wait_for_all()
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._counters.duration = time.monotonic() - began
            with suppress(TimeoutError):
                async with asyncio.timeout(TOTALS_TIMEOUT_SECONDS):
                    await self._collect_totals()

    # Work

    async def _start_waves(self, deadline: float) -> None:
        number = 0
        while time.monotonic() < deadline:
            began = time.monotonic()
            calls = [tasks.square.bind(number + each) for each in range(WAVE_JOBS)]
            runs = [run.id for run in await tasks.app.start_many(calls)]
            self._counters.start_seconds += time.monotonic() - began
            self._counters.wave_runs += runs
            number += WAVE_JOBS
            await self._wait_for_wave(runs, began)
            await asyncio.sleep(max(began + WAVE_INTERVAL_SECONDS - time.monotonic(), 0.05))

    async def _wait_for_wave(self, runs: list[int], began: float) -> None:
        """Wait until a wave has ended, and measure its rate without the jobs that are retried."""
        expected = WAVE_JOBS - WAVE_JOBS // tasks.FAIL_ONE_IN
        self._wave_row.total = WAVE_JOBS
        while True:
            [ended] = await self._database.run(live.count_ended(runs))
            seconds = time.monotonic() - began
            self._wave_row.done = ended
            self._wave_row.count = output.format_count(
                len(self._counters.wave_runs) - WAVE_JOBS + ended
            )
            if ended >= expected:
                self._counters.max_rate = max(self._counters.max_rate, ended / seconds)
                self._wave_row.text = (
                    f"{output.format_count(int(round(ended / seconds, -2)))} jobs/s"
                )
            if ended == WAVE_JOBS:
                return
            await asyncio.sleep(0.02 if ended < expected else 0.1)

    async def _wait_for_all(self) -> None:
        while True:
            [ended] = await self._database.run(live.count_ended(self._counters.wave_runs))
            if ended == len(self._counters.wave_runs):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _ping(self) -> None:
        """Run one job at a time and measure the time from start to result."""
        while True:
            began = time.monotonic()
            await (await tasks.ping.start(len(self._counters.latencies))).result()
            self._counters.latencies.append(time.monotonic() - began)
            self._ping_row.count = str(len(self._counters.latencies))
            median = statistics.median(self._counters.latencies)
            self._ping_row.text = f"{output.format_duration(median)} from start to result"
            await asyncio.sleep(PING_INTERVAL_SECONDS)

    async def _kill_worker(self) -> None:
        await asyncio.sleep(self._state.seconds / 2)
        await kill_worker.kill_and_recover(
            self._environment, self._database, self._state, self._counters, self._time_scale
        )

    # Observation

    async def _observe(self) -> None:
        while True:
            open_runs = self._flows.open_runs
            [[workers, held, services, schedule_list, *jobs]] = await self._database.pipeline(
                [
                    [
                        read_runs.workers(include_ended=True),
                        live.running_jobs(),
                        coordination.services(tasks.MONITOR),
                        read_schedules.schedules(tasks.HALTS),
                        *(read_runs.jobs(run) for run in open_runs),
                    ]
                ]
            )
            await self._flows.update(dict(zip(open_runs, jobs, strict=True)))
            workers_by_pid = {each.pid: each.worker for each in workers}
            self._update_monitor(services, workers_by_pid)
            self._update_schedule(schedule_list)
            killed = None if self._counters.kill is None else self._counters.kill.worker
            self._state.workers = [_demo_worker(each, held, killed) for each in workers]
            self._state.progress_rows = [
                *self._flows.progress_rows(),
                self._wave_row,
                self._ping_row,
                self._monitor_row,
                self._schedule_row,
            ]
            await asyncio.sleep(POLL_SECONDS)

    def _update_monitor(
        self, services: Iterable[ServiceRow], workers_by_pid: dict[int, int]
    ) -> None:
        for each in services:
            self._counters.monitor_iterations = each.iteration or 0
            self._monitor_row.count = output.format_count(self._counters.monitor_iterations)
            runner = workers_by_pid.get(each.pid or 0)
            text = (
                "not running" if runner is None else f"on worker {runner}, other workers stand by"
            )
            self._monitor_row.text = text

    def _update_schedule(self, schedules: Iterable[Schedule]) -> None:
        for each in schedules:
            self._counters.ticks, self._counters.missed_ticks = each.runs, each.missed
            self._schedule_row.count = output.format_count(each.runs)
            self._schedule_row.text = f"ticks, {each.when}"

    # Totals

    async def _collect_totals(self) -> None:
        counters = self._counters
        [[totals, [ended], ticks, services]] = await self._database.pipeline(
            [
                [
                    live.outcome_totals(),
                    live.count_ended(counters.wave_runs),
                    read_schedules.ticks(tasks.HALTS, 10_000),
                    coordination.services(tasks.MONITOR),
                ]
            ]
        )
        counters.job_states = {each.state: each.jobs for each in totals}
        counters.retries = sum(each.retries for each in totals)
        counters.open_jobs = len(counters.wave_runs) - ended
        started = [tick for tick in ticks if tick.run is not None]
        counters.ticks = len(started)
        counters.duplicate_ticks = len(started) - len({tick.planned for tick in started})
        for each in services:
            counters.monitor_iterations = each.iteration or 0
        for run, state in counters.flow_states.items():
            if state == "running":
                counters.flow_states[run] = (
                    await self._database.fetch_one(read_runs.state(run)) or state
                )


async def _run_for(running: list[asyncio.Task[None]], seconds: float) -> None:
    """Wait for `seconds`, or until a task fails."""
    done, _ = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for each in done:
        each.result()


def _demo_worker(
    worker: WorkerDetailRow, held: Iterable[RunningJobRow], killed: int | None
) -> DemoWorker:
    rows = [each for each in held if each.worker == worker.worker]
    states = {"active": "active", "draining": "stopping", "dead": "killed", "stopped": "stopped"}
    tasks_held: dict[str, int] = defaultdict(int)
    for each in rows:
        tasks_held[each.task.removeprefix("etl.")] += each.jobs
    text = ", ".join(
        name if count == 1 else f"{name} ×{count}"
        # Rare tasks first: the list of the others is long.
        for name, count in sorted(tasks_held.items(), key=lambda pair: (pair[1], pair[0]))
    )
    # The kill is known here before other workers detect it.
    state = "killed" if worker.worker == killed else states[worker.state]
    return DemoWorker(worker.worker, worker.pid, state, sum(each.jobs for each in rows), text)
