"""The play: who starts what and when, and who looks on."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from rota.cli import paint
from rota.cli.demo import accident, tasks
from rota.cli.demo.flows import Flows
from rota.cli.demo.scene import Hand, Part, Scene
from rota.cli.demo.stage import Stage
from rota.cli.demo.tally import Tally
from rota.model.agenda import Schedule
from rota.store import agenda, live, standing, views
from rota.store.live import HeldLine
from rota.store.standing import ServiceLine
from rota.store.views import WorkerDetail

WAVE = 2000
"""Jobs started in one call."""

WAVE_EVERY = 2.5
"""Seconds from one wave to the next; what is left of them, the machine has for who looks on."""

LOOK_EVERY = 0.4
PING_EVERY = 0.5
OVERTIME = 20.0
"""Seconds it may last longer, until who was killed is replaced and no job is open."""

LAST_WORDS = 2.0
"""Seconds in which the figures are put together at the end, at most."""


class Play:
    def __init__(self, stage: Stage, scene: Scene, tally: Tally) -> None:
        self._stage = stage
        self._scene = scene
        self._tally = tally
        self._pace = min(max(scene.seconds / 60, 0.05), 1.0)
        self._flows = Flows(scene, tally, self._pace)
        self._plain = Part("plain jobs")
        self._pings = Part("one by one")
        self._monitor = Part(tasks.MONITOR)
        self._clock = Part("schedule")

    async def perform(self) -> None:
        """All of it, for as long as it is to last."""
        self._database = (await tasks.app.open()).database
        await asyncio.gather(self._stage.add_worker(), self._stage.add_worker())
        self._scene.began = began = time.monotonic()
        until = began + self._scene.seconds
        accident = asyncio.create_task(self._accident())
        actors = [
            accident,
            *(
                asyncio.create_task(each)
                for each in (
                    self._look(),
                    self._flows.start(until),
                    self._waves(until - 1.0 - self._pace),
                    self._ping(),
                )
            ),
        ]
        try:
            await _for(actors, self._scene.seconds)
            # Where the machine is slow, what is the point of it all is waited for.
            with suppress(TimeoutError):
                async with asyncio.timeout(OVERTIME):
                    await accident
                    await self._all_ended()
        finally:
            for each in actors:
                each.cancel()
            await asyncio.gather(*actors, return_exceptions=True)
            self._tally.lasted = time.monotonic() - began
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await self._sum_up()

    # Those who do something

    async def _waves(self, until: float) -> None:
        number = 0
        while time.monotonic() < until:
            began = time.monotonic()
            calls = [tasks.square.call(number + each) for each in range(WAVE)]
            runs = [run.id for run in await tasks.app.start_many(calls)]
            self._tally.starting += time.monotonic() - began
            self._tally.plain += runs
            number += WAVE
            await self._ended(runs, began)
            await asyncio.sleep(max(began + WAVE_EVERY - time.monotonic(), 0.05))

    async def _ended(self, runs: list[int], began: float) -> None:
        """Look on until a wave is over, but for those that come back after a failure."""
        steady = WAVE - WAVE // tasks.FLAKY
        self._plain.total = WAVE
        while True:
            [ended] = await self._database.run(live.ended(runs))
            passed = time.monotonic() - began
            self._plain.done = ended
            self._plain.count = paint.number(len(self._tally.plain) - WAVE + ended)
            if ended >= steady:
                self._tally.fastest = max(self._tally.fastest, ended / passed)
                self._plain.words = f"{paint.number(int(round(ended / passed, -2)))} jobs/s"
            if ended == WAVE:
                return
            await asyncio.sleep(0.02 if ended < steady else 0.1)

    async def _all_ended(self) -> None:
        while True:
            [ended] = await self._database.run(live.ended(self._tally.plain))
            if ended == len(self._tally.plain):
                return
            await asyncio.sleep(LOOK_EVERY)

    async def _ping(self) -> None:
        """One job at a time, from its start to its result."""
        while True:
            began = time.monotonic()
            await (await tasks.ping.start(len(self._tally.latencies))).result()
            self._tally.latencies.append(time.monotonic() - began)
            self._pings.count = str(len(self._tally.latencies))
            usual = statistics.median(self._tally.latencies)
            self._pings.words = f"{paint.span(usual)} from start to result"
            await asyncio.sleep(PING_EVERY)

    async def _accident(self) -> None:
        await asyncio.sleep(self._scene.seconds / 2)
        await accident.happen(self._stage, self._database, self._scene, self._tally, self._pace)

    # Who looks on

    async def _look(self) -> None:
        while True:
            asked = self._flows.open
            [[workers, held, services, schedules, *jobs]] = await self._database.exchange(
                [
                    [
                        views.workers(gone=True),
                        live.held(),
                        standing.services(tasks.MONITOR),
                        agenda.schedules(tasks.HALTS),
                        *(views.jobs(run) for run in asked),
                    ]
                ]
            )
            await self._flows.see(dict(zip(asked, jobs, strict=True)))
            numbers = {each.pid: each.worker for each in workers}
            self._see_monitor(services, numbers)
            self._see_clock(schedules)
            killed = None if self._tally.accident is None else self._tally.accident.worker
            self._scene.hands = [_hand(each, held, killed) for each in workers]
            self._scene.parts = [
                *self._flows.parts(),
                self._plain,
                self._pings,
                self._monitor,
                self._clock,
            ]
            await asyncio.sleep(LOOK_EVERY)

    def _see_monitor(self, services: Iterable[ServiceLine], numbers: dict[int, int]) -> None:
        for each in services:
            self._tally.rounds = each.iteration or 0
            self._monitor.count = paint.number(self._tally.rounds)
            runner = numbers.get(each.pid or 0)
            where = "nobody runs it" if runner is None else f"on worker {runner}, others stand by"
            self._monitor.words = where

    def _see_clock(self, schedules: Iterable[Schedule]) -> None:
        for each in schedules:
            self._tally.ticks, self._tally.missed = each.runs, each.missed
            self._clock.count = paint.number(each.runs)
            self._clock.words = f"ticks, {each.when}"

    # The figures

    async def _sum_up(self) -> None:
        tally = self._tally
        [[sums, [ended], ticks, services]] = await self._database.exchange(
            [
                [
                    live.sums(),
                    live.ended(tally.plain),
                    agenda.ticks(tasks.HALTS, 10_000),
                    standing.services(tasks.MONITOR),
                ]
            ]
        )
        tally.states = {each.state: each.jobs for each in sums}
        tally.retries = sum(each.retries for each in sums)
        tally.open = len(tally.plain) - ended
        started = [tick for tick in ticks if tick.run is not None]
        tally.ticks = len(started)
        tally.twice = len(started) - len({tick.planned for tick in started})
        for each in services:
            tally.rounds = each.iteration or 0
        for run, state in tally.flows.items():
            if state == "running":
                tally.flows[run] = await self._database.one(views.state(run)) or state


async def _for(actors: list[asyncio.Task[None]], seconds: float) -> None:
    """Let them play, unless one of them fails."""
    done, _ = await asyncio.wait(actors, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for each in done:
        each.result()


def _hand(worker: WorkerDetail, held: Iterable[HeldLine], killed: int | None) -> Hand:
    mine = [each for each in held if each.worker == worker.worker]
    states = {"active": "works", "draining": "stopping", "dead": "killed", "stopped": "left"}
    tasks_held: dict[str, int] = defaultdict(int)
    for each in mine:
        tasks_held[each.task.removeprefix("etl.")] += each.jobs
    words = ", ".join(
        name if many == 1 else f"{name} ×{many}"
        # Those that are few first: there would be no end of the others.
        for name, many in sorted(tasks_held.items(), key=lambda pair: (pair[1], pair[0]))
    )
    # We know before the others do.
    state = "killed" if worker.worker == killed else states[worker.state]
    return Hand(worker.worker, worker.pid, state, sum(each.jobs for each in mine), words)
