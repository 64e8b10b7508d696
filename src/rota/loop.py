"""The one shape of every loop: tick, rest, wake, stop."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress

log = logging.getLogger("rota")


class Loop:
    """A loop that ticks until told to stop. A tick answers how long to rest: 0 for "there is more",
    None for "until somebody wakes me". A tick that fails is tried again, later each time."""

    rest_after_error = 0.1
    longest_rest_after_error = 5.0

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._stopped = False
        self._failures = 0

    async def tick(self) -> float | None:
        raise NotImplementedError

    async def run(self) -> None:
        while not self._stopped:
            self._wake.clear()  # before the tick, so a wake-up during it is not lost
            try:
                rest = await self.tick()
                self._failures = 0
            except Exception as error:
                rest = self._after(error)
                # A failing loop rests out its time: waking it early would make it spin.
                await self._rest_undisturbed(rest)
                continue
            if rest == 0:
                await asyncio.sleep(0)
                continue
            if rest is None:
                await self._wake.wait()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._wake.wait()

    def _after(self, error: Exception) -> float:
        self._failures += 1
        longest = self.rest_after_error * 2.0 ** min(self._failures - 1, 10)
        rest = min(longest, self.longest_rest_after_error) * random.uniform(0.5, 1.0)
        name = type(self).__name__.lower()
        if self._failures <= 3 or self._failures % 20 == 0:
            log.warning(
                "%s failed (%s: %s); trying again in %.1f s",
                name,
                type(error).__name__,
                str(error).split("\n", 1)[0],
                rest,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        return rest

    async def _rest_undisturbed(self, rest: float) -> None:
        step = 0.05
        while rest > 0 and not self._stopped:
            await asyncio.sleep(min(step, rest))
            rest -= step

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
