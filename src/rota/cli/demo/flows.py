"""Runs of the flow: one begins every few seconds, each is looked at and, after a moment, approved."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from rota import Run
from rota.cli.demo import tasks
from rota.cli.demo.scene import Part, Scene
from rota.cli.demo.tally import Tally
from rota.cli.paint import STATES
from rota.store.views import JobLine

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
EVERY = 9.0
"""Seconds from one to the next, at pace 1."""

THINKS = 2.5
"""Seconds somebody takes to approve, at pace 1."""

ENDS = ("succeeded", "failed", "cancelled", "expired", "skipped")


@dataclass(slots=True)
class Seen:
    run: Run[dict[str, Any]]
    day: str
    jobs: list[JobLine] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)
    asks: float | None = None
    """Since when it waits for an answer."""
    answered: bool = False


class Flows:
    def __init__(self, scene: Scene, tally: Tally, pace: float) -> None:
        self._scene = scene
        self._tally = tally
        self._pace = pace
        self._open: dict[int, Seen] = {}

    async def start(self, until: float) -> None:
        """Begin one now and one every few seconds, as long as it would end by then."""
        number = 0
        while number == 0 or time.monotonic() + tasks.LASTS * self._pace * 1.2 < until:
            day = DAYS[number % len(DAYS)]
            run = await tasks.etl.start(day=day, pace=self._pace)
            self._open[run.id] = Seen(run, day)
            self._tally.flows[run.id] = "running"
            self._scene.point_to(self._scene.flow or run.id)
            self._scene.tell(f"etl of {day} begins, as run {run.id}")
            number += 1
            await asyncio.sleep(EVERY * self._pace)

    @property
    def open(self) -> list[int]:
        return list(self._open)

    async def see(self, jobs: dict[int, list[JobLine]]) -> None:
        """What has become of those that are open."""
        for run, lines in jobs.items():
            seen = self._open[run]
            seen.jobs = lines
            self._tell_of_failures(seen)
            await self._approve(seen)
            if lines and all(each.state in ENDS for each in lines):
                await self._end(seen)
        if self._scene.flow not in self._open:
            self._scene.flow = next(iter(reversed(self._open)), self._scene.flow)

    def _tell_of_failures(self, seen: Seen) -> None:
        for job in seen.jobs:
            if job.state == "asleep" and job.attempt > 1 and job.job not in seen.tried:
                seen.tried.add(job.job)
                name = job.task.removeprefix("etl.")
                self._scene.tell(f"{name} of {seen.day} failed, and is tried again", "yellow")

    async def _approve(self, seen: Seen) -> None:
        waits = any(job.awaits and job.state == "asleep" for job in seen.jobs)
        if not waits or seen.answered:
            return
        if seen.asks is None:
            seen.asks = time.monotonic()
            self._scene.tell(f"etl of {seen.day} waits for somebody to approve", "blue")
        elif time.monotonic() - seen.asks >= THINKS * self._pace:
            seen.answered = True
            await seen.run.signal("approval", True)
            self._tally.approved += 1
            self._scene.tell(
                f"etl of {seen.day} was approved: rota signal {seen.run.id} approval true"
            )

    async def _end(self, seen: Seen) -> None:
        state = await seen.run.status()
        if state not in ENDS:
            return
        del self._open[seen.run.id]
        self._tally.flows[seen.run.id] = state
        words = state
        if state == "succeeded":
            words = f"succeeded, and went to {', '.join((await seen.run.result())['report'])}"
        self._scene.tell(f"etl of {seen.day} {words}", STATES[state])

    def parts(self) -> list[Part]:
        """The last three, the newest first, as they stand."""
        newest = sorted(self._open.values(), key=lambda seen: -seen.run.id)[:3]
        return [_part(seen) for seen in newest]


def _part(seen: Seen) -> Part:
    ended = sum(job.state in ENDS for job in seen.jobs)
    part = Part(f"etl {seen.day}", ended, len(seen.jobs) or None)
    part.count = f"{ended} of {len(seen.jobs)}" if seen.jobs else ""
    runs = [job.task.removeprefix("etl.") for job in seen.jobs if job.state == "running"]
    sleeps = [job for job in seen.jobs if job.state == "asleep"]
    if runs:
        part.words = ", ".join(runs)
    elif any(job.state == "ready" for job in seen.jobs):
        part.words = "waits for a worker"
    elif any(job.awaits for job in sleeps):
        part.words = "waits for approval"
    elif any(job.attempt > 1 for job in sleeps):
        part.words = "waits to try again"
    elif sleeps:
        part.words = "asleep"
    elif any(job.state == "waiting" for job in seen.jobs):
        part.words = "waits for the parts"
    return part
