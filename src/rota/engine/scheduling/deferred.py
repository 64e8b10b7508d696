"""Schedules that one worker cannot start, but another perhaps can.

In a rolling deploy a schedule's input may fit the new code and not the old; a time zone may be missing
on one machine. So a schedule that cannot be started is left to other workers for a while, before its
tick is refused or postponed.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime

log = logging.getLogger("rota")

DEFER_SECONDS = 15.0
"""Seconds that other workers have to start a schedule before it is refused."""

TickState = tuple[datetime | None, datetime | None]
"""The next tick of a schedule and its queued one; another worker that fires the schedule changes them."""


class DeferredSchedules:
    """Schedules that this worker cannot start, and since when this is known."""

    def __init__(self) -> None:
        self._deferred_since: dict[str, tuple[TickState, float]] = {}

    def deferred_names(self) -> list[str]:
        cutoff = time.monotonic() - DEFER_SECONDS
        return [name for name, (_, since) in self._deferred_since.items() if since > cutoff]

    def defer(self, name: str, tick_state: TickState, reason: str) -> bool:
        """Return True if the schedule is left to other workers from now on.

        False means that their time has passed: the tick state is still the same.
        """
        previous, _ = self._deferred_since.get(name, (None, 0.0))
        if previous == tick_state:
            return False
        self._deferred_since[name] = tick_state, time.monotonic()
        log.info(
            "schedule %r is left to other workers for %g s: this worker cannot start it: %s",
            name,
            DEFER_SECONDS,
            reason,
        )
        return True

    def clear(self, name: str) -> None:
        self._deferred_since.pop(name, None)
