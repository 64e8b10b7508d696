"""Rate limiter for all instances together: a number of calls per period, and a burst of unused ones.

A caller reserves the next free slot with one statement on one row, and sleeps until then. So callers are
served in order, and each needs one statement. A reserved slot that is not used, because its caller died
or was cancelled, is lost: giving it back would allow two callers at once later. A slot that was slept
through is lost, too: otherwise all callers waiting in a frozen program would go at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from rota.coord.coordinator import Coordinator
from rota.errors import ArgumentError, RateLimitExceeded
from rota.model.settings import Duration, to_seconds
from rota.store import rate_limits
from rota.store.rate_limits import RateLimitSlot

MIN_INTERVAL_SECONDS = 0.0001
"""Shortest interval in seconds; one row cannot count faster."""

CLOCK_SLACK_SECONDS = 0.001
"""Seconds by which the event loop's clock may be early."""

MAX_LATE_SECONDS = 0.25
"""Seconds after which a slot that was slept through is lost, unless the interval is longer."""


class RateLimiter:
    def __init__(
        self,
        open_coordinator: Callable[[], Awaitable[Coordinator]],
        name: str,
        limit: float,
        per: Duration,
        burst: int,
    ) -> None:
        self.name = name
        self.limit = limit
        self.per = to_seconds(per)
        self.burst = burst
        self._open_coordinator = open_coordinator
        if not 0 < limit < math.inf or not 0 < self.per < math.inf:
            raise ArgumentError(
                f"rate {name!r} is {limit:g} per {self.per:g} s; both have to be above 0"
            )
        if type(burst) is not int or burst < 1:
            raise ArgumentError(
                f"burst is how many may go at once: a whole number from 1 on, not {burst!r}"
            )
        # Whole microseconds, as in the database; rounded up, so the rate is never exceeded.
        self._interval = math.ceil(round(self.per / limit * 1e6, 3)) / 1e6
        if self._interval < MIN_INTERVAL_SECONDS:
            raise ArgumentError(
                f"rate {name!r} is {limit / self.per:.0f} a second, more than one row can count; "
                f"{1 / MIN_INTERVAL_SECONDS:.0f} at most"
            )

    async def take(self, n: int = 1, wait: Duration | None = None) -> None:
        """Reserve the next time at which `n` units are available, and sleep until then.

        If that is further away than `wait`, nothing is reserved and RateLimitExceeded is raised. A
        reservation that passed while the program was frozen is lost: another one is made within the rest
        of `wait`, or RateLimitExceeded is raised.
        """
        max_wait = math.inf if wait is None else max(to_seconds(wait), 0.0)
        deadline = time.monotonic() + max_wait
        # Two attempts at most: on a machine where every wake-up is late, the caller must still proceed.
        if not await self._take_once(n, max_wait):
            await self._take_once(n, max(deadline - time.monotonic(), 0.0))

    async def _take_once(self, n: int, max_wait: float) -> bool:
        """Return False if the slot was slept through, so that it may overlap with later slots."""
        reservation = await self._reserve(n, max_wait)
        if not reservation.is_reserved:
            raise RateLimitExceeded(
                f"rate {self.name!r} ({self.limit:g} per {self.per:g} s) allows no more for "
                f"{reservation.delay:.3g} s; wait that long with wait=…, or try again then",
                retry_after=reservation.delay,
            )
        if reservation.delay <= 0:
            return True
        due_at = time.monotonic() + reservation.delay
        await asyncio.sleep(reservation.delay + CLOCK_SLACK_SECONDS)
        return time.monotonic() - due_at < max(self._interval, MAX_LATE_SECONDS)

    async def try_take(self, n: int = 1) -> bool:
        """Return True if `n` units are available now; they are then counted."""
        return (await self._reserve(n, 0.0)).is_reserved

    async def _reserve(self, n: int, wait: float) -> RateLimitSlot:
        if type(n) is not int or not 1 <= n <= self.burst:
            raise ArgumentError(
                f"rate {self.name!r} lets 1 to {self.burst} go at once, not {n!r}; raise burst, "
                "or take fewer at a time"
            )
        database = (await self._open_coordinator()).database
        query = rate_limits.take(self.name, n, self._interval, self.burst, wait)
        while True:
            # A resent statement may count twice: the rate is then lower, never higher.
            for reservation in await database.run_with_retry(query):
                return reservation

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {self.limit:g} per {self.per:g} s>"
