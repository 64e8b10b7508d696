"""Counter of executions: their number, the sum of the job numbers and (optionally) their times.

The number of executions and the sum of the job numbers show that each job ran once. This costs two
additions for each job, the same for every contender.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from wire import Wire

TICK = 0.02


class Tally:
    """Counter that reports every 20 ms, and at once when a mark is reached."""

    def __init__(self, wire: Wire, marks: Sequence[int], timed: bool) -> None:
        self._wire = wire
        self._marks = sorted(marks, reverse=True)
        self._mark = self._marks.pop() if self._marks else 0
        self.count = 0
        self.total = 0
        self.times: list[tuple[int, int]] = []
        self.saw = self._saw_timed if timed else self._saw

    def _saw(self, n: int) -> None:
        self.count += 1
        self.total += n
        if self.count == self._mark:
            self._report()

    def _saw_timed(self, n: int) -> None:
        self.times.append((n, time.monotonic_ns()))
        self._saw(n)

    def say(self, n: int) -> None:
        """Count a job and report its number and start time at once."""
        at = time.monotonic_ns()
        self.saw(n)
        self._wire.write(started=n, at=at)

    def _report(self) -> None:
        self._wire.write(count=self.count, at=time.monotonic_ns())
        self._mark = self._marks.pop() if self._marks else 0

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Report inside the block. Without marks it does not, so that an idle worker stays idle."""
        ticker = asyncio.create_task(self._tick()) if self._mark else None
        yield
        if ticker:
            ticker.cancel()

    async def _tick(self) -> None:
        said = 0
        while True:
            await asyncio.sleep(TICK)
            if self.count != said:
                said = self.count
                self._wire.write(count=said, at=time.monotonic_ns())
