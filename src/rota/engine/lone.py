"""A job that was lost with its workers time and again runs alone: if it kills this one too, that is known.

Alone is: beside nothing but what has run for a while without harm. While it waits for that, and for as long
again once it runs, this worker starts nothing else; others go on. The database is told when it begins
and when it is no longer alone: whoever finds this worker dead knows by that what to think.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rota.store.jobs import Claimed

A_WHILE = 10.0
"""Seconds after which code that runs is taken to be harmless."""

Mark = Callable[[Claimed, bool], Awaitable[bool]]
"""Note whether a suspect runs alone. False: it is no longer ours."""


class Lone:
    """Of all that is on a desk, the one job that is to run alone."""

    def __init__(self, mark: Mark, others: Callable[[], int], free: Callable[[], None]) -> None:
        self._mark = mark
        self._others = others
        self._free = free
        self._job: Claimed | None = None
        self._quiet = asyncio.Event()
        self._no_longer: asyncio.Task[None] | None = None

    @property
    def reserved(self) -> bool:
        """Whether nothing else may start."""
        return self._job is not None

    def expect(self, job: Claimed) -> None:
        """It is here: nothing else begins from now on."""
        self._job = job
        self._quiet.clear()
        self.look()

    def look(self) -> None:
        """Something has ended."""
        if self._job is not None and not self._others():
            self._quiet.set()

    async def begin(self, job: Claimed) -> bool:
        """Wait until it is alone. False: it has been taken away meanwhile."""
        try:
            async with asyncio.timeout(A_WHILE):
                await self._quiet.wait()
        except TimeoutError:
            pass  # what still runs has run for a while
        if not await self._mark(job, True):
            self.end(job)
            return False
        self._no_longer = asyncio.create_task(self._let_others_in(job, A_WHILE))
        return True

    def waits(self, job: Claimed) -> None:
        """It waits for others, and does nothing that could do harm: perhaps for one that is to run here."""
        if job is self._job and self._no_longer is not None:
            self._no_longer.cancel()
            self._no_longer = asyncio.create_task(self._let_others_in(job, 0))

    async def _let_others_in(self, job: Claimed, after: float) -> None:
        await asyncio.sleep(after)
        if await self._mark(job, False):
            self._release(job)

    def end(self, job: Claimed) -> None:
        """It has ended, or was taken away."""
        if self._no_longer is not None and job is self._job:
            self._no_longer.cancel()
            self._no_longer = None
        self._release(job)

    def _release(self, job: Claimed) -> None:
        if job is self._job:
            self._job = None
            self._free()
