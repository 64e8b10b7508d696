"""Command loop of the Python contenders. The harness sends commands as lines.

A contender has five small methods. The measuring code is here, the same for all contenders. Times are
CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import uvloop
from tally import Tally
from wire import Wire

URL = "https://example.com/a/b"
# Seconds. Work that a contender does after its answer (a late wake-up) must not slow down the bare row.
PAUSE = 0.002


class Contender(Protocol):
    tally: Tally

    async def open(self, dsn: str) -> None: ...

    async def migrate(self) -> None:
        """Create the schema as the documentation describes."""

    async def enqueue(self, numbers: range) -> None:
        """Enqueue with one call of the fastest bulk API; durable when it returns."""

    async def start(self, n: int) -> None:
        """Start one job and await it; durable when it returns."""

    def working(self, concurrency: int, haste: bool) -> AbstractAsyncContextManager[None]:
        """Run a worker inside the block; stop it gracefully at the end.

        `haste` selects the settings that the documentation advises for throughput, else those for latency.
        """

    async def close(self) -> None: ...


class Verbs:
    """Commands, each a method of the same name."""

    def __init__(self, contender: Contender, wire: Wire, dsn: str) -> None:
        self._contender = contender
        self._wire = wire
        self._dsn = dsn

    async def migrate(self) -> dict[str, object]:
        await self._contender.migrate()
        return {}

    async def enqueue(self, first: int, count: int, calls: int) -> dict[str, object]:
        seconds = []
        for call in range(calls):
            began = time.monotonic_ns()
            await self._contender.enqueue(range(first + call * count, first + (call + 1) * count))
            seconds.append((time.monotonic_ns() - began) / 1e9)
        return {"seconds": seconds}

    async def singles(self, first: int, count: int) -> dict[str, object]:
        """Alternate one job and one bare row, so that both have the same disk conditions."""
        from bare import Bare  # imported here to keep it out of an idle worker's memory

        bare = await Bare.open(self._dsn)
        own, plain = [], []
        for n in range(first, first + count):
            began = time.monotonic_ns()
            await self._contender.start(n)
            own.append(time.monotonic_ns() - began)
            await asyncio.sleep(PAUSE)
            began = time.monotonic_ns()
            await bare.insert(n, URL)
            plain.append(time.monotonic_ns() - began)
            await asyncio.sleep(PAUSE)
        await bare.close()
        return {"own": own, "bare": plain}

    async def send(
        self, first: int, count: int, shortest: float, longest: float
    ) -> dict[str, object]:
        gaps = random.Random(first)
        sent = []
        for n in range(first, first + count):
            await asyncio.sleep(gaps.uniform(shortest, longest))
            before = time.monotonic_ns()
            await self._contender.start(n)
            sent.append((n, before, time.monotonic_ns()))
        return {"sent": sent}

    async def results(
        self, first: int, count: int, shortest: float, longest: float
    ) -> dict[str, object]:
        gaps = random.Random(first)
        taken = []
        for n in range(first, first + count):
            await asyncio.sleep(gaps.uniform(shortest, longest))
            before = time.monotonic_ns()
            await self._contender.start_and_wait(n)  # type: ignore[attr-defined]
            taken.append(time.monotonic_ns() - before)
        return {"taken": taken}

    async def work(
        self, concurrency: int, haste: bool, marks: list[int], timed: bool
    ) -> dict[str, object]:
        """Work until the next command arrives."""
        tally = self._contender.tally = Tally(self._wire, marks, timed)
        self._wire.write(working=time.monotonic_ns())
        async with self._contender.working(concurrency, haste), tally.telling():
            await self._wire.read()
        return {"count": tally.count, "total": tally.total, "times": tally.times}


async def _serve(contender: Contender) -> None:
    dsn = os.environ["BENCH_DSN"]
    wire = await Wire.open()
    await contender.open(dsn)
    verbs = Verbs(contender, wire, dsn)
    wire.write(pid=os.getpid())
    while (command := await wire.read()) is not None:
        verb: Any = getattr(verbs, command.pop("do"))
        wire.write(done=verb.__name__, **await verb(**command))
    await contender.close()


def serve(contender: Contender) -> None:
    """Answer commands until stdin ends. All contenders run on uvloop."""
    uvloop.run(_serve(contender))
