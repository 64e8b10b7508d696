"""Half-way, one worker is killed with SIGKILL; what it held is counted, and followed to its end.

It is frozen for a moment first: what it holds then is what it dies with.
"""

from __future__ import annotations

import asyncio
import time

from rota.cli.demo import tasks
from rota.cli.demo.scene import Scene
from rota.cli.demo.stage import Stage
from rota.cli.demo.tally import Accident, Tally
from rota.store import claims, live, standing, views
from rota.store.database import Database
from rota.store.live import PlaceLine
from rota.store.views import WorkerDetail

LOOK_EVERY = 0.05
ENOUGH = 20
"""Jobs it should hold, so that there is something to see; it is not waited for long."""

UNDER_WAY = ("waiting", "ready", "running", "asleep")
WAIT_FOR_THEM = 3.0
REST = 4.0
"""Seconds the survivor is alone, at pace 1."""


async def happen(stage: Stage, database: Database, scene: Scene, tally: Tally, pace: float) -> None:
    worker, pid = await _victim(database)
    await _busy(database, worker)
    stage.freeze(pid)
    await asyncio.sleep(LOOK_EVERY)  # what it had sent by then has been done
    held = [job for each in await database.run(claims.mine(worker)) for job in each.jobs]
    await stage.kill(pid)
    recovery = Recovery(database, scene, Accident(worker, len(held)), held, pid)
    tally.accident = recovery.accident
    scene.tell(f"worker {worker} was killed, with {_jobs(len(held))} in its hands", "bold red")
    async with asyncio.TaskGroup() as group:
        group.create_task(recovery.follow())
        await recovery.noticed.wait()
        await asyncio.sleep(REST * pace)
        await stage.add_worker()
        newest = max(each.worker for each in await database.run(views.workers()))
        scene.tell(f"worker {newest} was started in its place", "green")


async def _victim(database: Database) -> tuple[int, int]:
    """The one that runs the monitor: so that goes over to another, too."""
    there = {each.pid: each.worker for each in await database.run(views.workers())}
    [monitor] = await database.run(standing.services(tasks.MONITOR))
    pid = monitor.pid if monitor.pid in there else max(there, key=lambda pid: there[pid])
    return there[pid], pid


async def _busy(database: Database, worker: int) -> None:
    until = time.monotonic() + WAIT_FOR_THEM
    while time.monotonic() < until:
        held = await database.run(live.held())
        if sum(each.jobs for each in held if each.worker == worker) >= ENOUGH:
            return
        await asyncio.sleep(LOOK_EVERY / 5)


class Recovery:
    """What becomes of all that the dead worker had."""

    def __init__(
        self, database: Database, scene: Scene, accident: Accident, held: list[int], pid: int
    ) -> None:
        self.accident = accident
        self.noticed = asyncio.Event()
        self._database = database
        self._scene = scene
        self._held = held
        self._pid = pid
        self._killed = time.monotonic()

    async def follow(self) -> None:
        """Look on until it is as if nothing had happened."""
        accident = self.accident
        while accident.recovered is None or accident.monitor is None:
            [[places, workers, services]] = await self._database.exchange(
                [
                    [
                        live.whereabouts(self._held),
                        views.workers(gone=True),
                        standing.services(tasks.MONITOR),
                    ]
                ]
            )
            passed = time.monotonic() - self._killed
            if accident.noticed is None:
                self._see_whether_noticed(passed, places, workers)
            elif accident.recovered is None:
                self._see_whether_over(passed, places)
            if accident.monitor is None and services[0].pid not in (None, self._pid):
                accident.monitor = passed
                self._scene.tell(f"{tasks.MONITOR} goes on elsewhere, {_after(passed)}")
            await asyncio.sleep(LOOK_EVERY)

    def _see_whether_noticed(
        self, passed: float, places: list[PlaceLine], workers: list[WorkerDetail]
    ) -> None:
        victim = self.accident.worker
        dead = any(each.worker == victim and each.state == "dead" for each in workers)
        if not dead or any(each.worker == victim and each.state == "running" for each in places):
            return
        self.accident.noticed = passed
        self.noticed.set()
        others = [f"worker {each.worker}" for each in workers if each.state == "active"]
        self._scene.tell(
            f"worker {victim} was killed — its {_jobs(len(self._held))} run again on "
            f"{' and '.join(others)}",
            "bold",
        )

    def _see_whether_over(self, passed: float, places: list[PlaceLine]) -> None:
        if any(each.state in UNDER_WAY for each in places):
            return
        accident = self.accident
        accident.recovered = passed
        accident.succeeded = sum(each.jobs for each in places if each.state == "succeeded")
        heirs = {each.worker for each in places if each.worker is not None}
        accident.heirs = tuple(sorted(heirs - {accident.worker}))
        self._scene.tell(f"all {_jobs(len(self._held))} have ended, {_after(passed)}", "green")


def _jobs(many: int) -> str:
    return "1 job" if many == 1 else f"{many:,} jobs"


def _after(seconds: float) -> str:
    return f"{seconds:.1f} s after the kill"
