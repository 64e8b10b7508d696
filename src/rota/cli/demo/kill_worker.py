"""Kill of a worker with SIGKILL half-way, and observation of its jobs until they have ended.

The worker is frozen for a moment first, so that the jobs it holds do not change before the kill.
"""

from __future__ import annotations

import asyncio
import time

from rota.cli.demo import tasks
from rota.cli.demo.counters import DemoCounters, WorkerKill
from rota.cli.demo.environment import DemoEnvironment
from rota.cli.demo.state import DemoState
from rota.store import claims
from rota.store.database import Database
from rota.store.read import coordination, live, runs
from rota.store.read.live import JobStateRow
from rota.store.read.runs import WorkerDetailRow

POLL_SECONDS = 0.05
MIN_HELD_JOBS = 20
"""Jobs that the worker should hold, to make the effect visible. The wait for this is short."""

OPEN_STATES = ("waiting", "queued", "running", "sleeping")
BUSY_TIMEOUT_SECONDS = 3.0
REPLACE_DELAY_SECONDS = 4.0
"""Time without a replacement, at time scale 1."""


async def kill_and_recover(
    environment: DemoEnvironment,
    database: Database,
    state: DemoState,
    counters: DemoCounters,
    time_scale: float,
) -> None:
    worker, pid = await _choose_worker(database)
    await _wait_until_busy(database, worker)
    environment.freeze(pid)
    await asyncio.sleep(POLL_SECONDS)  # statements sent before the freeze have completed
    held = [job for each in await database.run(claims.by_worker(worker)) for job in each.jobs]
    await environment.kill(pid)
    recovery = Recovery(database, state, WorkerKill(worker, len(held)), held, pid)
    counters.kill = recovery.kill
    state.add_event(
        f"worker {worker} was killed, with {_format_jobs(len(held))} in its hands", "bold red"
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(recovery.observe())
        await recovery.detected.wait()
        await asyncio.sleep(REPLACE_DELAY_SECONDS * time_scale)
        await environment.add_worker()
        newest = max(each.worker for each in await database.run(runs.workers()))
        state.add_event(f"worker {newest} was started in its place", "green")


async def _choose_worker(database: Database) -> tuple[int, int]:
    """Return the worker that runs the monitor, so that the monitor moves, too."""
    workers_by_pid = {each.pid: each.worker for each in await database.run(runs.workers())}
    [monitor] = await database.run(coordination.services(tasks.MONITOR))
    pid = (
        monitor.pid
        if monitor.pid in workers_by_pid
        else max(workers_by_pid, key=lambda pid: workers_by_pid[pid])
    )
    return workers_by_pid[pid], pid


async def _wait_until_busy(database: Database, worker: int) -> None:
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        held = await database.run(live.running_jobs())
        if sum(each.jobs for each in held if each.worker == worker) >= MIN_HELD_JOBS:
            return
        await asyncio.sleep(POLL_SECONDS / 5)


class Recovery:
    """Recovery of the dead worker's jobs and service."""

    def __init__(
        self, database: Database, state: DemoState, kill: WorkerKill, held: list[int], pid: int
    ) -> None:
        self.kill = kill
        self.detected = asyncio.Event()
        self._database = database
        self._state = state
        self._held = held
        self._pid = pid
        self._killed_at = time.monotonic()

    async def observe(self) -> None:
        """Observe until all jobs have ended and the monitor runs again."""
        kill = self.kill
        while kill.recovered is None or kill.monitor_moved is None:
            [[job_states, workers, services]] = await self._database.pipeline(
                [
                    [
                        live.job_states(self._held),
                        runs.workers(include_ended=True),
                        coordination.services(tasks.MONITOR),
                    ]
                ]
            )
            seconds = time.monotonic() - self._killed_at
            if kill.detected is None:
                self._check_detected(seconds, job_states, workers)
            elif kill.recovered is None:
                self._check_recovered(seconds, job_states)
            if kill.monitor_moved is None and services[0].pid not in (None, self._pid):
                kill.monitor_moved = seconds
                self._state.add_event(
                    f"{tasks.MONITOR} goes on elsewhere, {_format_after(seconds)}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _check_detected(
        self, seconds: float, job_states: list[JobStateRow], workers: list[WorkerDetailRow]
    ) -> None:
        killed = self.kill.worker
        dead = any(each.worker == killed and each.state == "dead" for each in workers)
        if not dead or any(
            each.worker == killed and each.state == "running" for each in job_states
        ):
            return
        self.kill.detected = seconds
        self.detected.set()
        active = [f"worker {each.worker}" for each in workers if each.state == "active"]
        self._state.add_event(
            f"worker {killed} was killed — its {_format_jobs(len(self._held))} run again on "
            f"{' and '.join(active)}",
            "bold",
        )

    def _check_recovered(self, seconds: float, job_states: list[JobStateRow]) -> None:
        if any(each.state in OPEN_STATES for each in job_states):
            return
        kill = self.kill
        kill.recovered = seconds
        kill.succeeded = sum(each.jobs for each in job_states if each.state == "succeeded")
        finished_by = {each.worker for each in job_states if each.worker is not None}
        kill.finished_by = tuple(sorted(finished_by - {kill.worker}))
        self._state.add_event(
            f"all {_format_jobs(len(self._held))} have ended, {_format_after(seconds)}", "green"
        )


def _format_jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _format_after(seconds: float) -> str:
    return f"{seconds:.1f} s after the kill"
