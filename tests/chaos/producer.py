"""Producer that keeps starting jobs of all kinds and remembers which starts were acknowledged.

A start whose connection was cut has an unknown result, never a failed one. With a key it is retried and
returns the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import psycopg

from rota import Rota
from rota.errors import DatabaseUnavailable

from .app import Tasks, define
from .history import History

BATCH = 12
ENOUGH = 400
"""Number of waiting jobs above which no more are started."""


class Producer:
    def __init__(
        self,
        dsn: str,
        history: History,
        mix: Mapping[str, int],
        rate: float,
        random: Random,
        waiting: Callable[[], int],
    ) -> None:
        self._app = Rota(dsn, outage_timeout=2.0)
        self._tasks = define(self._app)
        self._note = history.note
        self._kinds = list(mix)
        self._weights = list(mix.values())
        self._pause = BATCH / rate
        self._random = random
        self._waiting = waiting
        self._number = 0
        self.acknowledged: set[int] = set()
        self.jobs = 0
        self.unknown = 0
        self.doubles: list[str] = []

    async def run(self) -> None:
        """Start jobs until cancelled."""
        try:
            while True:
                if self._waiting() < ENOUGH:
                    await self._start_some()
                await asyncio.sleep(self._pause * self._random.uniform(0.7, 1.3))
        finally:
            await self._app.close()

    async def start(self, kind: str, many: int = 1) -> list[int]:
        """Start `many` jobs of one kind and wait for the answer."""
        runs = await self._app.start_many([self._call(kind) for _ in range(many)])
        self.acknowledged.update(run.id for run in runs)
        self.jobs += many
        return [run.id for run in runs]

    async def _start_some(self) -> None:
        kinds = self._random.choices(self._kinds, self._weights, k=BATCH)
        flows = [kind for kind in kinds if kind in ("diamond", "fan")]
        plain = [kind for kind in kinds if kind not in ("diamond", "fan")]
        await self._attempt([self._call(kind) for kind in flows])
        await self._attempt([self._call(kind) for kind in plain[1:]])
        await self._keyed()

    async def _attempt(self, calls: list[Any]) -> None:
        if not calls:
            return
        try:
            runs = await self._app.start_many(calls)
        except (psycopg.OperationalError, DatabaseUnavailable, OSError):
            self.unknown += 1
            self._note("unknown", many=len(calls))
            return
        self.acknowledged.update(run.id for run in runs)
        self.jobs += len(runs)
        self._note("started", runs=[run.id for run in runs])

    async def _keyed(self) -> None:
        """Start a job with a key until the start is answered, and sometimes again, for the same run."""
        self._number += 1
        key = f"key-{self._number}"
        found: set[int] = set()
        while len(found) == 0 or self._random.random() < 0.3:
            try:
                run = await self._tasks.noop.options(key=key).start(self._number)
                found.add(run.id)
            except (psycopg.OperationalError, DatabaseUnavailable, OSError):
                self.unknown += 1
                self._note("unknown", key=key)
                await asyncio.sleep(0.1)
        if len(found) > 1:
            self.doubles.append(f"{key} came to runs {sorted(found)}")
        self.acknowledged |= found
        self.jobs += 1
        self._note("started", runs=sorted(found), key=key)

    def _call(self, kind: str) -> Any:
        tasks: Tasks = self._tasks
        random = self._random
        match kind:
            case "noop" | "external" | "flaky":
                return getattr(tasks, kind).bind(random.randrange(1000))
            case "nap" | "neighbour":
                return getattr(tasks, kind).bind(random.uniform(0.0, 0.2))
            case "block":
                return tasks.block.bind(random.uniform(0.0, 0.1))
            case "long":
                return tasks.long.bind(random.uniform(0.5, 3.0))
            case "effect":
                return tasks.effect.bind(random.choice((0.0, 0.0, 0.02, 0.1)))
            case "walk":
                return tasks.walk.bind(random.randrange(2, 8))
            case "journey":
                return tasks.journey.bind(random.randrange(1000), random.choice((1, 1, 1, 2)))
            case "trek":
                return tasks.trek.bind(random.randrange(1000))
            case "mapper":
                return tasks.mapper.bind(random.randrange(2, 9))
            case "diamond":
                return tasks.diamond.bind(n=random.randrange(1000))
            case "fan":
                return tasks.fan.bind(n=random.randrange(1000))
        return getattr(tasks, kind).bind()
