"""Apps whose leases are timed by a clock that the test advances.

The clock stands still until then, so a slow machine costs no lease. Advancing it wakes all code that waits
for a time of it. A lease in the database expires by the database's clock; `ClockedRota.advance` moves both.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from rota import Rota
from rota.app.client import Client
from rota.coord.lease import LeaseClock
from rota.testing import SettableClock


class OwnedTimer:
    def __init__(
        self, when: float, callback: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.when = when
        self._callback = callback
        self._loop = loop
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def fire(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        if not self._cancelled:
            self._callback()


class OwnedClock(LeaseClock):
    """Clock that stands still until `advance` is called. Thread-safe."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._timers: list[OwnedTimer] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> OwnedTimer:
        timer = OwnedTimer(when, callback, asyncio.get_running_loop())
        with self._lock:
            self._timers.append(timer)
        self._fire_due_timers()
        return timer

    def advance(self, seconds: float) -> None:
        self.advance_to(self._now + seconds)

    def advance_to(self, when: float) -> None:
        with self._lock:
            self._now = when
        self._fire_due_timers()

    async def advance_until(self, condition: Callable[[], object], step: float = 1.0) -> None:
        """Advance in steps until the condition holds. The code under test runs between two steps."""
        async with asyncio.timeout(60):
            while not condition():
                self.advance(step)
                await asyncio.sleep(0.005)

    def _fire_due_timers(self) -> None:
        with self._lock:
            due = [each for each in self._timers if each.when <= self._now]
            self._timers = [each for each in self._timers if each.when > self._now]
        for each in sorted(due, key=lambda timer: timer.when):
            each.fire()


class ClockedRota(Rota):
    """App with an owned lease clock."""

    def __init__(self, dsn: str, lease_clock: OwnedClock | None = None, **overrides: Any) -> None:
        super().__init__(dsn, **overrides)
        self.lease_clock = lease_clock or OwnedClock()

    def _create_client(self, dsn: str, direct: str | None) -> Client:
        publish, counters = self.event_bus.publish, self.process_counters
        return Client(
            *(dsn, self.settings, direct, publish, self.tracing, counters, self.lease_clock)
        )

    async def advance(self, seconds: float) -> None:
        """Advance the clock of the database, which stands still from now on, and then that of the app."""
        await SettableClock(self).advance(timedelta(seconds=seconds))
        self.lease_clock.advance(seconds)
