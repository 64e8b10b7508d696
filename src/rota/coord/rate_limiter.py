"""How often something happens, over all instances: so many in so much time, and a few at once if they were
saved up.

Whoever wants to go reserves the next moment that is free, in one statement on one row, and sleeps until
then. So nobody is overtaken, and nobody asks twice. A moment that was reserved and not used, because who
reserved it has died or changed his mind, is gone: to give it back would let two go at once later on. So is
one that was slept through: a program that was frozen would let all go at once that waited in it.
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
"""Seconds from one to the next: more often than that, one row cannot count."""

CLOCK_SLACK_SECONDS = 0.001
"""Seconds by which the clock of a loop may be early."""

MAX_LATE_SECONDS = 0.25
"""Seconds after which a moment is over, unless they come further apart."""


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
        # Whole microseconds, as the database counts; rather a little too far apart than too near.
        self._interval = math.ceil(round(self.per / limit * 1e6, 3)) / 1e6
        if self._interval < MIN_INTERVAL_SECONDS:
            raise ArgumentError(
                f"rate {name!r} is {limit / self.per:.0f} a second, more than one row can count; "
                f"{1 / MIN_INTERVAL_SECONDS:.0f} at most"
            )

    async def take(self, n: int = 1, wait: Duration | None = None) -> None:
        """Reserve the next time at which `n` units are available, and sleep until then.

        If that is further away than `wait`, nothing is reserved and RateLimitExceeded is raised. A
        reservation that passed while the program was frozen is lost: another one is made within what is
        left of `wait`, or RateLimitExceeded is raised.
        """
        max_wait = math.inf if wait is None else max(to_seconds(wait), 0.0)
        deadline = time.monotonic() + max_wait
        # Twice at most: where everything is late, somebody has to go all the same.
        if not await self._take_once(n, max_wait):
            await self._take_once(n, max(deadline - time.monotonic(), 0.0))

    async def _take_once(self, n: int, max_wait: float) -> bool:
        """Answers whether we were there in time, and not when others have their turn."""
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
        """Whether `n` may go now; then they are counted."""
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
            # Asked again it may count twice: then fewer go, never more.
            for reservation in await database.run_with_retry(query):
                return reservation

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {self.limit:g} per {self.per:g} s>"
