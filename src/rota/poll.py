"""Pauses of a client that polls for a state and may also be notified of it."""

from __future__ import annotations

import asyncio
import math
import random

from rota.clock import Clock

FIRST_POLL_SECONDS = 0.02


class PollPauses:
    """Pauses between the polls of one client. Each is twice as long as the last, up to `max_seconds`.

    A notification ends a pause early. A client that will be notified pauses for `notified_seconds`, because
    the notification may be lost. Each pause is shortened at random, to `min_share` of it at the least.
    """

    def __init__(
        self,
        clock: Clock,
        timeout: float | None,
        *,
        max_seconds: float,
        notified_seconds: float,
        min_share: float = 1.0,
    ) -> None:
        self.notified = False
        """True if a notification has arrived. The client resets it before each poll."""
        self._clock = clock
        self._deadline = math.inf if timeout is None else clock.now() + timeout
        self._seconds = FIRST_POLL_SECONDS
        self._max_seconds = max_seconds
        self._notified_seconds = notified_seconds
        self._min_share = min_share
        self._wake = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """True if the timeout has passed."""
        return self._clock.now() >= self._deadline

    def notify(self) -> None:
        self.notified = True
        self._wake.set()

    async def pause(self, *, will_be_notified: bool, at_most: float = math.inf) -> None:
        """Wait until the next poll is due: after a pause, a notification, or the timeout."""
        self._seconds = min(self._seconds * 2, self._max_seconds)
        seconds = self._notified_seconds if will_be_notified else self._seconds
        seconds = min(seconds * random.uniform(self._min_share, 1.0), at_most)
        self._wake.clear()
        if self.notified:
            return
        timer = self._clock.call_at(
            min(self._clock.now() + seconds, self._deadline), self._wake.set
        )
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
