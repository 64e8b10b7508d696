"""Sequence of the demo: starts work, kills a worker and observes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from rota.cli.demo import kill_worker, tasks
from rota.cli.demo.environment import DemoEnvironment
from rota.cli.demo.flows import DemoFlows
from rota.cli.demo.state import DemoState, DemoWorker, ProgressRow
from rota.cli.output import format_count, format_duration
from rota.store.read import coordination, live
from rota.store.read import runs as read_runs
from rota.store.read import schedules as read_schedules
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

WORKER_STATES = {"active": "active", "draining": "stopping", "dead": "killed", "stopped": "stopped"}


class Scenario:
    def __init__(self, environment: DemoEnvironment, state: DemoState) -> None:
        self._environment = environment
        self._state = state
        self._counters = state.counters
        self._time_scale = min(max(state.seconds / 60, 0.05), 1.0)
        self._flows = DemoFlows(state, self._time_scale)
        self._waves = ProgressRow("plain jobs")
        self._pings = ProgressRow("one by one")
        self._monitor = ProgressRow(tasks.MONITOR)
        self._schedule = ProgressRow("schedule")

    async def run(self) -> None:
        """Run the whole demo."""
        self._database = (await tasks.app.open()).database
        await asyncio.gather(self._environment.add_worker(), self._environment.add_worker())
        self._state.began = began = time.monotonic()
        deadline = began + self._state.seconds
        parts = (
            self._kill_worker(),
            self._observe(),
            self._flows.start(deadline),
            self._start_waves(deadline - 1.0 - self._time_scale),
            self._ping(),
        )
        running = [asyncio.create_task(each) for each in parts]
        try:
            done, _ = await asyncio.wait(
                running, timeout=self._state.seconds, return_when=asyncio.FIRST_EXCEPTION
            )
            for each in done:
                each.result()
            # On a slow machine, wait until the recovery is complete.
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_OVERTIME_SECONDS):
                    await running[0]
                    await self._wait_for_all_jobs()
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._counters.duration = time.monotonic() - began
            with suppress(TimeoutError):
                async with asyncio.timeout(TOTALS_TIMEOUT_SECONDS):
                    await self._collect_totals()

    async def _wait_for_all_jobs(self) -> None:
        while True:
            if not await self._count_open_jobs():
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _count_open_jobs(self) -> int:
        [ended] = await self._database.run(live.count_ended(self._counters.wave_runs))
        return len(self._counters.wave_runs) - ended

    # Work

    async def _start_waves(self, deadline: float) -> None:
        while (began := time.monotonic()) < deadline:
            number = len(self._counters.wave_runs)
            calls = [tasks.square.bind(number + each) for each in range(WAVE_JOBS)]
            runs = [run.id for run in await tasks.app.start_many(calls)]
            self._counters.start_seconds += time.monotonic() - began
            self._counters.wave_runs += runs
            await self._wait_for_wave(runs, began)
            await asyncio.sleep(max(began + WAVE_INTERVAL_SECONDS - time.monotonic(), 0.05))

    async def _wait_for_wave(self, runs: list[int], began: float) -> None:
        """Wait until a wave has ended, and measure its rate without the jobs that are retried."""
        expected = WAVE_JOBS - WAVE_JOBS // tasks.FAIL_ONE_IN
        earlier_jobs = len(self._counters.wave_runs) - WAVE_JOBS
        self._waves.total, ended = WAVE_JOBS, 0
        while ended < WAVE_JOBS:
            [ended] = await self._database.run(live.count_ended(runs))
            rate = ended / (time.monotonic() - began)
            self._waves.done = ended
            self._waves.count = format_count(earlier_jobs + ended)
            if ended >= expected:
                self._counters.max_rate = max(self._counters.max_rate, rate)
                self._waves.text = f"{format_count(int(round(rate, -2)))} jobs/s"
            await asyncio.sleep(0.02 if ended < expected else 0.1)

    async def _ping(self) -> None:
        """Run one job at a time and measure the time from start to result."""
        latencies = self._counters.latencies
        while True:
            began = time.monotonic()
            await (await tasks.ping.start(len(latencies))).result()
            latencies.append(time.monotonic() - began)
            self._pings.count = str(len(latencies))
            median = format_duration(statistics.median(latencies))
            self._pings.text = f"{median} from start to result"
            await asyncio.sleep(PING_INTERVAL_SECONDS)

    async def _kill_worker(self) -> None:
        await asyncio.sleep(self._state.seconds / 2)
        await kill_worker.kill_and_recover(
            self._environment, self._database, self._state, self._time_scale
        )

    # Observation

    async def _observe(self) -> None:
        fixed_rows = [self._waves, self._pings, self._monitor, self._schedule]
        while True:
            open_runs = self._flows.open_runs
            [[workers, held, services, schedules, *jobs]] = await self._database.pipeline(
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
            for service in services:
                runner = next((each.worker for each in workers if each.pid == service.pid), None)
                place = f"on worker {runner}, other workers stand by" if runner else "not running"
                self._counters.monitor_iterations = service.iteration or 0
                self._monitor.count = format_count(self._counters.monitor_iterations)
                self._monitor.text = place
            for schedule in schedules:
                self._counters.ticks = schedule.runs
                self._counters.missed_ticks = schedule.missed
                self._schedule.count = format_count(schedule.runs)
                self._schedule.text = f"ticks, {schedule.when}"
            killed = None if self._counters.kill is None else self._counters.kill.worker
            self._state.workers = [_demo_worker(each, held, killed) for each in workers]
            self._state.progress_rows = [*self._flows.progress_rows(), *fixed_rows]
            await asyncio.sleep(POLL_SECONDS)

    # Totals

    async def _collect_totals(self) -> None:
        counters = self._counters
        counters.open_jobs = await self._count_open_jobs()
        [[totals, ticks, services]] = await self._database.pipeline(
            [
                [
                    live.outcome_totals(),
                    read_schedules.ticks(tasks.HALTS, 10_000),
                    coordination.services(tasks.MONITOR),
                ]
            ]
        )
        counters.job_states = {each.state: each.jobs for each in totals}
        counters.retries = sum(each.retries for each in totals)
        started = [tick.planned for tick in ticks if tick.run is not None]
        counters.ticks = len(started)
        counters.duplicate_ticks = len(started) - len(set(started))
        for each in services:
            counters.monitor_iterations = each.iteration or 0
        for run, state in counters.flow_states.items():
            if state == "running":
                current = await self._database.fetch_one(read_runs.state(run))
                counters.flow_states[run] = current or state


def _demo_worker(
    worker: WorkerDetailRow, held: Iterable[RunningJobRow], killed: int | None
) -> DemoWorker:
    jobs: Counter[str] = Counter()
    for each in held:
        if each.worker == worker.worker:
            jobs[each.task.removeprefix("etl.")] += each.jobs
    # Rare tasks first: the list of the others is long.
    rows = sorted(jobs.items(), key=lambda pair: (pair[1], pair[0]))
    text = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in rows)
    # The kill is known here before other workers detect it.
    state = "killed" if worker.worker == killed else WORKER_STATES[worker.state]
    return DemoWorker(worker.worker, worker.pid, state, jobs.total(), text)
