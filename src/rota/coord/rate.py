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

from rota.coord.company import Company
from rota.errors import ArgumentError, RateExceeded
from rota.model.settings import Duration, seconds
from rota.store import rates
from rota.store.rates import Turn

SHORTEST = 0.0001
"""Seconds from one to the next: more often than that, one row cannot count."""

COARSE = 0.001
"""Seconds by which the clock of a loop may be early."""

LATE = 0.25
"""Seconds after which a moment is over, unless they come further apart."""


class Rate:
    def __init__(
        self,
        company: Callable[[], Awaitable[Company]],
        name: str,
        limit: float,
        per: Duration,
        burst: int,
    ) -> None:
        self.name = name
        self.limit = limit
        self.per = seconds(per)
        self.burst = burst
        self._open = company
        if not 0 < limit < math.inf or not 0 < self.per < math.inf:
            raise ArgumentError(
                f"rate {name!r} is {limit:g} per {self.per:g} s; both have to be above 0"
            )
        if type(burst) is not int or burst < 1:
            raise ArgumentError(
                f"burst is how many may go at once: a whole number from 1 on, not {burst!r}"
            )
        # Whole microseconds, as the database counts; rather a little too far apart than too near.
        self._apart = math.ceil(round(self.per / limit * 1e6, 3)) / 1e6
        if self._apart < SHORTEST:
            raise ArgumentError(
                f"rate {name!r} is {limit / self.per:.0f} a second, more than one row can count; "
                f"{1 / SHORTEST:.0f} at most"
            )

    async def take(self, n: int = 1, wait: Duration | None = None) -> None:
        """Wait for our turn: reserve the next moment at which `n` may go, and sleep until then. If that is
        further off than `wait`, nothing is reserved and RateExceeded is raised. A moment that was slept
        through, in a program that was frozen, is lost: another is reserved within what is left of `wait`,
        or RateExceeded is raised then."""
        longest = math.inf if wait is None else max(seconds(wait), 0.0)
        ends = time.monotonic() + longest
        # Twice at most: where everything is late, somebody has to go all the same.
        if not await self._take(n, longest):
            await self._take(n, max(ends - time.monotonic(), 0.0))

    async def _take(self, n: int, longest: float) -> bool:
        """Answers whether we were there in time, and not when others have their turn."""
        turn = await self._reserve(n, longest)
        if not turn.reserved:
            raise RateExceeded(
                f"rate {self.name!r} ({self.limit:g} per {self.per:g} s) allows no more for "
                f"{turn.delay:.3g} s; wait that long with wait=…, or try again then",
                retry_after=turn.delay,
            )
        if turn.delay <= 0:
            return True
        ends = time.monotonic() + turn.delay
        await asyncio.sleep(turn.delay + COARSE)
        return time.monotonic() - ends < max(self._apart, LATE)

    async def try_take(self, n: int = 1) -> bool:
        """Whether `n` may go now; then they are counted."""
        return (await self._reserve(n, 0.0)).reserved

    async def _reserve(self, n: int, wait: float) -> Turn:
        if type(n) is not int or not 1 <= n <= self.burst:
            raise ArgumentError(
                f"rate {self.name!r} lets 1 to {self.burst} go at once, not {n!r}; raise burst, "
                "or take fewer at a time"
            )
        database = (await self._open()).database
        query = rates.take(self.name, n, self._apart, self.burst, wait)
        while True:
            # Asked again it may count twice: then fewer go, never more.
            for turn in await database.insist(query):
                return turn

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {self.limit:g} per {self.per:g} s>"
