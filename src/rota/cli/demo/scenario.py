"""Sequence of the demo: starts work, kills a worker and observes until its jobs have ended."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from rota import Run
from rota.cli.demo import tasks
from rota.cli.demo.environment import DemoEnvironment
from rota.cli.demo.state import DemoState, WorkerKill
from rota.cli.demo.view import round_rate
from rota.cli.output import STATE_STYLES, format_count, format_duration
from rota.model.text import counted
from rota.store import claims
from rota.store.query import Query
from rota.store.read import coordination, live, runs, schedules

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
FLOW_INTERVAL_SECONDS = 9.0
"""Pause between two runs of the flow, at time scale 1."""

APPROVAL_SECONDS = 2.5
"""Time until the approval, at time scale 1."""

WAVE_JOBS = 2000
"""Jobs started in one call."""

WAVE_INTERVAL_SECONDS = 2.5
"""Time from one wave to the next. The pause leaves the machine time for the dashboard."""

POLL_SECONDS = 0.4
PING_INTERVAL_SECONDS = 0.5

KILL_POLL_SECONDS = 0.05
MIN_HELD_JOBS = 20
"""Jobs that the worker should hold, to make the effect visible. The wait for this is short."""

BUSY_TIMEOUT_SECONDS = 3.0

REPLACE_DELAY_SECONDS = 4.0
"""Time without a replacement, at time scale 1."""

MAX_OVERTIME_SECONDS = 20.0
"""Extra time until the killed worker is replaced and no job is open."""

TOTALS_TIMEOUT_SECONDS = 2.0
"""Time limit for collecting the totals at the end."""

FINAL_STATES = ("succeeded", "failed", "cancelled", "expired", "skipped")


class Scenario:
    def __init__(self, environment: DemoEnvironment, state: DemoState) -> None:
        self._environment = environment
        self._state = state
        self._counters = state.counters
        self._time_scale = min(max(state.seconds / 60, 0.05), 1.0)
        self._flow_runs: list[int] = []

    async def run(self) -> None:
        """Run the whole demo."""
        self._database = (await tasks.app.open()).database
        self._state.began = began = time.monotonic()
        deadline = began + self._state.seconds
        parts = (
            self._kill_worker(),
            self._start_waves(deadline - 1.0 - self._time_scale),
            self._ping(),
            self._observe(),
            self._start_flows(deadline - tasks.FLOW_SECONDS * self._time_scale * 1.2),
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
                    jobs = self._counters.wave_runs
                    await self._read_until(
                        lambda ended: ended == [len(jobs)], live.count_ended(jobs)
                    )
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._counters.duration = time.monotonic() - began
            with suppress(TimeoutError):
                async with asyncio.timeout(TOTALS_TIMEOUT_SECONDS):
                    await self._collect_totals()

    async def _read(self, *queries: Query[Any]) -> list[Any]:
        """Return the rows of each query."""
        [rows] = await self._database.pipeline([queries])
        return list(rows)

    async def _read_until(self, condition: Callable[..., bool], *queries: Query[Any]) -> list[Any]:
        """Repeat the queries until their rows fulfil the condition."""
        while True:
            rows = await self._read(*queries)
            if condition(*rows):
                return rows
            await asyncio.sleep(KILL_POLL_SECONDS)

    # Work

    async def _start_waves(self, deadline: float) -> None:
        counters, rows = self._counters, self._state.rows
        while (began := time.monotonic()) < deadline:
            first = len(counters.wave_runs)
            calls = [tasks.square.bind(number) for number in range(first, first + WAVE_JOBS)]
            started = [run.id for run in await tasks.app.start_many(calls)]
            counters.start_seconds += time.monotonic() - began
            counters.wave_runs += started
            ended, rate = 0, None
            while ended < WAVE_JOBS:
                [[ended]] = await self._read(live.count_ended(started))
                if rate is None and ended >= WAVE_JOBS - WAVE_JOBS // tasks.FAIL_ONE_IN:
                    rate = ended / (time.monotonic() - began)
                    counters.wave_rates.append(rate)
                jobs = f"{format_count(first + ended)} ended"
                rows["plain jobs"] = f"{jobs}, {round_rate(rate)} jobs/s" if rate else jobs
                await asyncio.sleep(0.02 if rate is None else 0.1)
            await asyncio.sleep(max(began + WAVE_INTERVAL_SECONDS - time.monotonic(), 0.05))

    async def _ping(self) -> None:
        """Run one job at a time and measure the time from start to result."""
        latencies = self._counters.latencies
        while True:
            began = time.monotonic()
            await (await tasks.ping.start(len(latencies))).result()
            latencies.append(time.monotonic() - began)
            median = format_duration(statistics.median(latencies))
            self._state.rows["one by one"] = f"{len(latencies)} jobs, {median} from start to result"
            await asyncio.sleep(PING_INTERVAL_SECONDS)

    async def _start_flows(self, last_start: float) -> None:
        """Start a run of the flow now and every few seconds."""
        async with asyncio.TaskGroup() as group:
            for day in itertools.cycle(DAYS):
                group.create_task(self._follow_flow(day))
                await asyncio.sleep(FLOW_INTERVAL_SECONDS * self._time_scale)
                if time.monotonic() >= last_start:
                    break

    async def _follow_flow(self, day: str) -> None:
        """Start a run of the flow, approve it after a pause, and report its result."""
        rows, add_event = self._state.rows, self._state.add_event
        run = await tasks.etl.start(day=day, time_scale=self._time_scale)
        self._flow_runs.append(run.id)
        self._state.begin_flow(run.id)
        add_event(f"etl of {day} begins, as run {run.id}")
        retried = False
        while (state := await run.status()) not in FINAL_STATES:
            [jobs] = await self._read(runs.jobs(run.id))
            ended = sum(job.state in FINAL_STATES for job in jobs)
            running = [job.task.removeprefix("etl.") for job in jobs if job.state == "running"]
            words = ", ".join(running) or "nothing running"
            rows[f"etl {day}"] = f"{ended} of {len(jobs)} jobs ended; {words}"
            if not retried and any(job.wakes and job.attempt > 1 for job in jobs):
                retried = True
                add_event(f"extract_payments of {day} failed and is retried", "yellow")
            if any(job.awaits for job in jobs):
                await self._approve(run, day)
            await asyncio.sleep(POLL_SECONDS)
        rows.pop(f"etl {day}", None)
        if state == "succeeded":
            state = f"succeeded; report sent to {', '.join((await run.result())['report'])}"
        add_event(f"etl of {day} {state}", STATE_STYLES[state.split(";")[0]])

    async def _approve(self, run: Run[Any], day: str) -> None:
        self._state.add_event(f"etl of {day} waits for approval", "blue")
        await asyncio.sleep(APPROVAL_SECONDS * self._time_scale)
        await run.signal("approval", True)
        self._counters.approved += 1
        self._state.add_event(f"etl of {day} was approved: rota signal {run.id} approval true")

    # Kill of a worker

    async def _kill_worker(self) -> None:
        """Kill a worker with SIGKILL half-way, and observe until its jobs have ended.

        The worker is frozen for a moment first, so that the jobs it holds do not change before the kill.
        """
        await asyncio.sleep(self._state.seconds / 2)
        workers, [monitor] = await self._read(runs.workers(), coordination.services(tasks.MONITOR))
        # The worker that runs the monitor, so that the monitor moves, too.
        victim = max(workers, key=lambda each: (each.pid == monitor.pid, each.worker))
        worker, held_claims = victim.worker, claims.by_worker(victim.worker)
        with suppress(TimeoutError):
            async with asyncio.timeout(BUSY_TIMEOUT_SECONDS):
                await self._read_until(lambda held: len(_jobs(held)) >= MIN_HELD_JOBS, held_claims)
        self._environment.freeze(victim.pid)
        await asyncio.sleep(KILL_POLL_SECONDS)  # statements sent before the freeze have completed
        held = _jobs((await self._read(held_claims))[0])
        await self._environment.kill(victim.pid)
        began, jobs = time.monotonic(), counted(len(held), "job")
        self._counters.kill = kill = WorkerKill(worker, len(held))
        self._state.add_event(f"worker {worker} was killed while it held {jobs}", "bold red")

        def is_taken_back(states: list[Any], workers: list[Any]) -> bool:
            """True if the worker was declared dead and holds none of the jobs any more."""
            is_dead = any(each.worker == worker and each.state == "dead" for each in workers)
            holds = any(each.worker == worker and each.state == "running" for each in states)
            return is_dead and not holds

        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_monitor(kill, victim.pid))
            states = live.job_states(held)
            _, workers = await self._read_until(
                is_taken_back, states, runs.workers(include_ended=True)
            )
            kill.detected = time.monotonic() - began
            group.create_task(self._replace_worker())
            active = " and ".join(
                f"worker {each.worker}" for each in workers if each.state == "active"
            )
            text = f"worker {worker} was killed — its {jobs} run again on {active}"
            self._state.add_event(text, "bold")
            [ended] = await self._read_until(
                lambda rows: all(each.state in FINAL_STATES for each in rows), states
            )
            kill.recovered = time.monotonic() - began
            kill.succeeded = sum(each.jobs for each in ended if each.state == "succeeded")
            kill.finished_by = tuple(sorted({each.worker for each in ended} - {worker, None}))
            text = f"all {jobs} have ended, {kill.recovered:.1f} s after the kill"
            self._state.add_event(text, "green")

    async def _follow_monitor(self, kill: WorkerKill, pid: int) -> None:
        began = time.monotonic()
        await self._read_until(
            lambda services: services[0].pid not in (None, pid),
            coordination.services(tasks.MONITOR),
        )
        kill.monitor_moved = time.monotonic() - began
        text = f"{tasks.MONITOR} runs on another worker, {kill.monitor_moved:.1f} s after the kill"
        self._state.add_event(text)

    async def _replace_worker(self) -> None:
        await asyncio.sleep(REPLACE_DELAY_SECONDS * self._time_scale)
        await self._environment.add_worker()
        [workers] = await self._read(runs.workers())
        newest = max(each.worker for each in workers)
        self._state.add_event(f"worker {newest} replaces it", "green")

    # Observation

    async def _observe(self) -> None:
        rows = self._state.rows
        while True:
            workers, [service], [schedule] = await self._read(
                runs.workers(include_ended=True),
                coordination.services(tasks.MONITOR),
                schedules.schedules(tasks.HALTS),
            )
            runner = next((each.worker for each in workers if each.pid == service.pid), None)
            place = f"on worker {runner}, other workers stand by" if runner else "not running"
            rows[tasks.MONITOR] = f"{service.iteration or 0} iterations, {place}"
            rows[tasks.HALTS] = f"{schedule.runs} ticks of a schedule, {schedule.when}"
            self._counters.missed_ticks = schedule.missed
            for each in workers:
                # The kill is known here before the other workers detect it.
                is_killed = self._counters.kill and each.worker == self._counters.kill.worker
                state = "killed" if is_killed else each.state
                load = f", {each.running} of {each.capacity} slots" if state == "active" else ""
                rows[f"worker {each.worker}"] = f"process {each.pid} {state}{load}"
            await asyncio.sleep(POLL_SECONDS)

    async def _collect_totals(self) -> None:
        counters = self._counters
        totals, [ended], ticks, [service], *states = await self._read(
            live.outcome_totals(),
            live.count_ended(counters.wave_runs),
            schedules.ticks(tasks.HALTS, 10_000),
            coordination.services(tasks.MONITOR),
            *map(runs.state, self._flow_runs),
        )
        counters.open_jobs = len(counters.wave_runs) - ended
        counters.job_states = {each.state: each.jobs for each in totals}
        counters.retries = sum(each.retries for each in totals)
        started = [tick.planned for tick in ticks if tick.run is not None]
        counters.ticks = len(started)
        counters.duplicate_ticks = len(started) - len(set(started))
        counters.monitor_iterations = service.iteration or 0
        counters.flow_states = [state for [state] in states]


def _jobs(held: Iterable[claims.HeldClaim]) -> list[int]:
    return [job for claim in held for job in claim.jobs]
