"""What one worker cannot start, and others perhaps can.

In a rolling deploy a schedule's input may fit the new code and not the old; a time zone may be missing on
one machine. So what cannot be started here is left to others for a while before it is refused or put off.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime

log = logging.getLogger("rota")

DEFER_SECONDS = 15.0
"""Seconds that others have for what does not fit here, before it is refused."""

TickState = tuple[datetime | None, datetime | None]
"""The next tick of a schedule and the one that waits: others who see to it move it on."""


class DeferredSchedules:
    """Schedules that do not fit what is here, and since when that is known."""

    def __init__(self) -> None:
        self._deferred_since: dict[str, tuple[TickState, float]] = {}

    def deferred_names(self) -> list[str]:
        cutoff = time.monotonic() - DEFER_SECONDS
        return [name for name, (_, since) in self._deferred_since.items() if since > cutoff]

    def defer(self, name: str, tick_state: TickState, reason: str) -> bool:
        """Whether others have still to be given the time; no: none of them has taken it, for it is where it
        was."""
        previous, _ = self._deferred_since.get(name, (None, 0.0))
        if previous == tick_state:
            return False
        self._deferred_since[name] = tick_state, time.monotonic()
        log.info(
            "schedule %r is left to others for %g s: %s, as things are here",
            name,
            DEFER_SECONDS,
            reason,
        )
        return True

    def clear(self, name: str) -> None:
        self._deferred_since.pop(name, None)
