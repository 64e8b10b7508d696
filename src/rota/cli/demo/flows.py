"""Runs of the demo's flow: one is started every few seconds and approved after a pause."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from rota import Run
from rota.cli.demo import tasks
from rota.cli.demo.state import DemoState, ProgressRow
from rota.cli.output import STATE_STYLES
from rota.store.read.runs import JobRow

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
START_INTERVAL_SECONDS = 9.0
"""Pause between two starts, at time scale 1."""

APPROVAL_SECONDS = 2.5
"""Time until the approval, at time scale 1."""

FINAL_STATES = ("succeeded", "failed", "cancelled", "expired", "skipped")


@dataclass(slots=True)
class FlowProgress:
    run: Run[dict[str, Any]]
    day: str
    jobs: list[JobRow] = field(default_factory=list)
    retried_jobs: set[int] = field(default_factory=set)
    waiting_since: float | None = None
    """Time since which it waits for the approval."""
    is_approved: bool = False

    def row(self) -> ProgressRow:
        ended = sum(job.state in FINAL_STATES for job in self.jobs)
        count = f"{ended} of {len(self.jobs)}" if self.jobs else ""
        return ProgressRow(f"etl {self.day}", ended, len(self.jobs) or None, count, self._text())

    def _text(self) -> str:
        running = [job.task.removeprefix("etl.") for job in self.jobs if job.state == "running"]
        sleeping = [job for job in self.jobs if job.state == "sleeping"]
        states = {job.state for job in self.jobs}
        texts = (
            (", ".join(running), running),
            ("waits for a worker", "queued" in states),
            ("waits for approval", any(job.awaits for job in sleeping)),
            ("waits for its retry", any(job.attempt > 1 for job in sleeping)),
            ("sleeping", sleeping),
            ("waits for the parts", "waiting" in states),
        )
        return next((text for text, applies in texts if applies), "")


class DemoFlows:
    def __init__(self, state: DemoState, time_scale: float) -> None:
        self._state = state
        self._counters = state.counters
        self._time_scale = time_scale
        self._open_runs: dict[int, FlowProgress] = {}

    async def start(self, deadline: float) -> None:
        """Start a run now and every few seconds, as long as it can end before the deadline."""
        last_start = deadline - tasks.FLOW_SECONDS * self._time_scale * 1.2
        number = 0
        while number == 0 or time.monotonic() < last_start:
            day = DAYS[number % len(DAYS)]
            run = await tasks.etl.start(day=day, time_scale=self._time_scale)
            self._open_runs[run.id] = FlowProgress(run, day)
            self._counters.flow_states[run.id] = "running"
            self._state.show_flow_run(self._state.flow_run or run.id)
            self._state.add_event(f"etl of {day} begins, as run {run.id}")
            number += 1
            await asyncio.sleep(START_INTERVAL_SECONDS * self._time_scale)

    @property
    def open_runs(self) -> list[int]:
        return list(self._open_runs)

    def progress_rows(self) -> list[ProgressRow]:
        """Return rows for the latest three open runs, newest first."""
        return [self._open_runs[run].row() for run in sorted(self._open_runs, reverse=True)[:3]]

    async def update(self, jobs: dict[int, list[JobRow]]) -> None:
        """Update the open runs with their current jobs."""
        for run, rows in jobs.items():
            progress = self._open_runs[run]
            progress.jobs = rows
            self._note_retries(progress)
            if any(job.awaits and job.state == "sleeping" for job in rows):
                await self._approve(progress)
            if rows and all(each.state in FINAL_STATES for each in rows):
                await self._finish(progress)
        if self._state.flow_run not in self._open_runs:
            self._state.flow_run = next(iter(reversed(self._open_runs)), self._state.flow_run)

    def _note_retries(self, progress: FlowProgress) -> None:
        for job in progress.jobs:
            is_retried = job.state == "sleeping" and job.attempt > 1
            if is_retried and job.job not in progress.retried_jobs:
                progress.retried_jobs.add(job.job)
                text = f"{job.task.removeprefix('etl.')} of {progress.day} failed and is retried"
                self._state.add_event(text, "yellow")

    async def _approve(self, progress: FlowProgress) -> None:
        if progress.waiting_since is None:
            progress.waiting_since = time.monotonic()
            self._state.add_event(f"etl of {progress.day} waits for approval", "blue")
        waited = time.monotonic() - progress.waiting_since
        if progress.is_approved or waited < APPROVAL_SECONDS * self._time_scale:
            return
        progress.is_approved = True
        await progress.run.signal("approval", True)
        self._counters.approved += 1
        command = f"rota signal {progress.run.id} approval true"
        self._state.add_event(f"etl of {progress.day} was approved: {command}")

    async def _finish(self, progress: FlowProgress) -> None:
        text = state = await progress.run.status()
        if state not in FINAL_STATES:
            return
        del self._open_runs[progress.run.id]
        self._counters.flow_states[progress.run.id] = state
        if state == "succeeded":
            text = f"succeeded; report sent to {', '.join((await progress.run.result())['report'])}"
        self._state.add_event(f"etl of {progress.day} {text}", STATE_STYLES[state])
