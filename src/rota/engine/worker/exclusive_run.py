"""A job that was lost with its workers time and again runs alone: if it kills this one too, that is known.

Alone is: beside nothing but what has run for a while without harm. While it waits for that, and for as long
again once it runs, this worker starts nothing else; others go on. The database is told when it begins
and when it is no longer alone: whoever finds this worker dead knows by that what to think.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rota.store.jobs import ClaimedJob

HARMLESS_AFTER_SECONDS = 10.0
"""Seconds after which code that runs is taken to be harmless."""

MarkExclusive = Callable[[ClaimedJob, bool], Awaitable[bool]]
"""Note whether a suspect runs alone. False: it is no longer ours."""


class ExclusiveRun:
    """Of all that is on a desk, the one job that is to run alone."""

    def __init__(
        self,
        mark_exclusive: MarkExclusive,
        count_others: Callable[[], int],
        on_released: Callable[[], None],
    ) -> None:
        self._mark_exclusive = mark_exclusive
        self._count_others = count_others
        self._on_released = on_released
        self._job: ClaimedJob | None = None
        self._others_finished = asyncio.Event()
        self._release_task: asyncio.Task[None] | None = None

    @property
    def is_reserved(self) -> bool:
        """Whether nothing else may start."""
        return self._job is not None

    def reserve(self, job: ClaimedJob) -> None:
        """It is here: nothing else begins from now on."""
        self._job = job
        self._others_finished.clear()
        self.check_alone()

    def check_alone(self) -> None:
        """Something has ended."""
        if self._job is not None and not self._count_others():
            self._others_finished.set()

    async def begin(self, job: ClaimedJob) -> bool:
        """Wait until it is alone. False: it has been taken away meanwhile."""
        try:
            async with asyncio.timeout(HARMLESS_AFTER_SECONDS):
                await self._others_finished.wait()
        except TimeoutError:
            pass  # what still runs has run for a while
        if not await self._mark_exclusive(job, True):
            self.end(job)
            return False
        self._release_task = asyncio.create_task(self._release_after(job, HARMLESS_AFTER_SECONDS))
        return True

    def allow_others(self, job: ClaimedJob) -> None:
        """It waits for others, and does nothing that could do harm: perhaps for one that is to run here."""
        if job is self._job and self._release_task is not None:
            self._release_task.cancel()
            self._release_task = asyncio.create_task(self._release_after(job, 0))

    async def _release_after(self, job: ClaimedJob, delay: float) -> None:
        await asyncio.sleep(delay)
        if await self._mark_exclusive(job, False):
            self._release(job)

    def end(self, job: ClaimedJob) -> None:
        """It has ended, or was taken away."""
        if self._release_task is not None and job is self._job:
            self._release_task.cancel()
            self._release_task = None
        self._release(job)

    def _release(self, job: ClaimedJob) -> None:
        if job is self._job:
            self._job = None
            self._on_released()
