"""Base class of Rota's loops: tick, pause, wake, stop."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress

log = logging.getLogger("rota")


class Loop:
    """Loop that calls `tick` until it is stopped.

    `tick` returns the seconds to pause: 0 to run again at once, None to pause until `wake` is called. After
    an error the loop pauses and retries, with an exponentially growing delay.
    """

    name: str
    """Name of the loop in log messages."""
    error_delay_seconds = 0.1
    max_error_delay_seconds = 5.0

    def __init__(self, wake: asyncio.Event | None = None) -> None:
        self._wake = wake or asyncio.Event()
        self._stopped = False
        self._failures = 0

    async def tick(self) -> float | None:
        raise NotImplementedError

    async def run(self) -> None:
        while not self._stopped:
            self._wake.clear()  # before the tick, so a wake-up during it is not lost
            try:
                pause_seconds = await self.tick()
                self._failures = 0
            except Exception as error:
                pause_seconds = self._on_error(error)
                # A failing loop pauses for the whole delay: an early wake-up would make it spin.
                await self._sleep_unless_stopped(pause_seconds)
                continue
            if pause_seconds == 0:
                await asyncio.sleep(0)
                continue
            if pause_seconds is None:
                await self._wake.wait()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._wake.wait()

    def _on_error(self, error: Exception) -> float:
        self._failures += 1
        delay = self.error_delay_seconds * 2.0 ** min(self._failures - 1, 10)
        pause_seconds = min(delay, self.max_error_delay_seconds) * random.uniform(0.5, 1.0)
        if self._failures <= 3 or self._failures % 20 == 0:
            log.warning(
                "%s failed (%s: %s); retrying in %.1f s",
                self.name,
                type(error).__name__,
                str(error).split("\n", 1)[0],
                pause_seconds,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        return pause_seconds

    async def _sleep_unless_stopped(self, seconds: float) -> None:
        step = 0.05
        while seconds > 0 and not self._stopped:
            await asyncio.sleep(min(step, seconds))
            seconds -= step

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()


def with_jitter(seconds: float, least: float = 0.75, most: float = 1.25) -> float:
    """Vary a pause at random, so that workers do not act at the same time."""
    return seconds * random.uniform(least, most)
