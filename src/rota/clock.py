"""Monotonic clock with timers, as an object, so that a caller chooses the clock by which code waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock:
    def now(self) -> float:
        """Return the time in seconds, counted from an arbitrary moment. Thread-safe."""
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in the running event loop when the clock has reached `when`."""
        return asyncio.get_running_loop().call_later(max(when - self.now(), 0.0), callback)
