"""What every Python contender can do, asked for by the harness line by line.

A contender is five small methods; the measuring is here, once, so that it is the same
for all. Times are CLOCK_MONOTONIC, which one machine's processes share.
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
# What a contender does after it has answered (a late wake-up) must not slow the bare row.
PAUSE = 0.002


class Contender(Protocol):
    tally: Tally

    async def open(self, dsn: str) -> None: ...

    async def migrate(self) -> None:
        """Create the schema as the documentation says."""

    async def enqueue(self, numbers: range) -> None:
        """The best bulk call there is, once; durable when it returns."""

    async def start(self, n: int) -> None:
        """One job, awaited; durable when it returns."""

    def working(self, concurrency: int, haste: bool) -> AbstractAsyncContextManager[None]:
        """A worker that runs inside, and leaves in order at the end.

        `haste` asks for what the documentation advises for throughput, else for latency.
        """

    async def close(self) -> None: ...


class Verbs:
    """The commands, each a method of the same name."""

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
        """One job, one bare row, one job, … so that both meet the same disk."""
        from bare import Bare  # here, or an idle worker's memory would have it too

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
        """Works until the next command, whatever it says."""
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
    """Answer until stdin ends. uvloop for all: none pays for another's event loop."""
    uvloop.run(_serve(contender))
