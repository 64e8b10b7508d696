"""What one worker cannot start, and others perhaps can.

In a rolling deploy a schedule's input may fit the new code and not the old; a time zone may be missing on
one machine. So what cannot be started here is left to others for a while before it is refused or put off.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime

log = logging.getLogger("rota")

LEFT_TO_OTHERS = 15.0
"""Seconds that others have for what does not fit here, before it is refused."""

Where = tuple[datetime | None, datetime | None]
"""The next tick of a schedule and the one that waits: others who see to it move it on."""


class Misfits:
    """Schedules that do not fit what is here, and since when that is known."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Where, float]] = {}

    def left_to_others(self) -> list[str]:
        begin = time.monotonic() - LEFT_TO_OTHERS
        return [name for name, (_, since) in self._since.items() if since > begin]

    def leave(self, name: str, where: Where, why: str) -> bool:
        """Whether others have still to be given the time; no: none of them has taken it, for it is where it
        was."""
        before, _ = self._since.get(name, (None, 0.0))
        if before == where:
            return False
        self._since[name] = where, time.monotonic()
        log.info(
            "schedule %r is left to others for %g s: %s, as things are here",
            name,
            LEFT_TO_OTHERS,
            why,
        )
        return True

    def fits(self, name: str) -> None:
        self._since.pop(name, None)
