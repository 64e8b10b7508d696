"""Kill of a worker with SIGKILL half-way, and observation of its jobs until they have ended.

The worker is frozen for a moment first, so that the jobs it holds do not change before the kill.
"""

from __future__ import annotations

import asyncio
import time

from rota.cli.demo import tasks
from rota.cli.demo.environment import DemoEnvironment
from rota.cli.demo.state import DemoState, WorkerKill
from rota.model.text import counted
from rota.store import claims
from rota.store.database import Database
from rota.store.read import coordination, live, runs

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
    time_scale: float,
) -> None:
    worker, pid = await _choose_worker(database)
    await _wait_until_busy(database, worker)
    environment.freeze(pid)
    await asyncio.sleep(POLL_SECONDS)  # statements sent before the freeze have completed
    held = [job for each in await database.run(claims.by_worker(worker)) for job in each.jobs]
    await environment.kill(pid)
    state.counters.kill = kill = WorkerKill(worker, len(held))
    jobs = counted(len(held), "job")
    state.add_event(f"worker {worker} was killed, with {jobs} in its hands", "bold red")
    detected = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(_observe(database, state, kill, held, pid, detected))
        await detected.wait()
        await asyncio.sleep(REPLACE_DELAY_SECONDS * time_scale)
        await environment.add_worker()
        newest = max(each.worker for each in await database.run(runs.workers()))
        state.add_event(f"worker {newest} was started in its place", "green")


async def _choose_worker(database: Database) -> tuple[int, int]:
    """Return the worker that runs the monitor, so that the monitor moves, too."""
    workers = {each.pid: each.worker for each in await database.run(runs.workers())}
    [monitor] = await database.run(coordination.services(tasks.MONITOR))
    pid = monitor.pid if monitor.pid in workers else max(workers, key=lambda pid: workers[pid])
    return workers[pid], pid


async def _wait_until_busy(database: Database, worker: int) -> None:
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        held = await database.run(live.running_jobs())
        if sum(each.jobs for each in held if each.worker == worker) >= MIN_HELD_JOBS:
            return
        await asyncio.sleep(POLL_SECONDS / 5)


def _was_taken_back(
    worker: int, workers: list[runs.WorkerDetailRow], job_states: list[live.JobStateRow]
) -> bool:
    """True if the worker was declared dead and holds none of the jobs any more."""
    is_dead = any(each.worker == worker and each.state == "dead" for each in workers)
    return is_dead and not any(
        each.worker == worker and each.state == "running" for each in job_states
    )


async def _observe(
    database: Database,
    state: DemoState,
    kill: WorkerKill,
    held: list[int],
    pid: int,
    detected: asyncio.Event,
) -> None:
    """Observe until all jobs of the dead worker have ended and the monitor runs again."""
    killed_at = time.monotonic()
    while kill.recovered is None or kill.monitor_moved is None:
        [[job_states, workers, services]] = await database.pipeline(
            [
                [
                    live.job_states(held),
                    runs.workers(include_ended=True),
                    coordination.services(tasks.MONITOR),
                ]
            ]
        )
        seconds = time.monotonic() - killed_at
        if kill.detected is None:
            if _was_taken_back(kill.worker, workers, job_states):
                kill.detected = seconds
                detected.set()
                active = (f"worker {each.worker}" for each in workers if each.state == "active")
                text = f"its {counted(len(held), 'job')} run again on {' and '.join(active)}"
                state.add_event(f"worker {kill.worker} was killed — {text}", "bold")
        elif kill.recovered is None and all(each.state not in OPEN_STATES for each in job_states):
            _note_recovery(state, kill, job_states, len(held), seconds)
        if kill.monitor_moved is None and services[0].pid not in (None, pid):
            kill.monitor_moved = seconds
            state.add_event(f"{tasks.MONITOR} goes on elsewhere, {seconds:.1f} s after the kill")
        await asyncio.sleep(POLL_SECONDS)


def _note_recovery(
    state: DemoState,
    kill: WorkerKill,
    job_states: list[live.JobStateRow],
    held: int,
    seconds: float,
) -> None:
    kill.recovered = seconds
    kill.succeeded = sum(each.jobs for each in job_states if each.state == "succeeded")
    finished_by = {each.worker for each in job_states if each.worker is not None}
    kill.finished_by = tuple(sorted(finished_by - {kill.worker}))
    text = f"all {counted(held, 'job')} have ended, {seconds:.1f} s after the kill"
    state.add_event(text, "green")
