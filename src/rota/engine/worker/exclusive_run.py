"""Exclusive run of a job that was lost with its worker more than once.

The job runs alone in its worker. If this worker dies too, the job is known to be the cause.

Alone means: every other job in the worker has run for HARMLESS_AFTER_SECONDS without harm. The worker
starts no other job while it waits for that, nor in the first HARMLESS_AFTER_SECONDS of the run. Other
workers are not affected. The claim stores when the exclusive run begins and ends. The worker that declares
this one dead decides by that whether the job is charged with the crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rota.store.jobs import ClaimedJob

HARMLESS_AFTER_SECONDS = 10.0
"""Time after which running code is considered harmless."""

MarkExclusive = Callable[[ClaimedJob, bool], Awaitable[bool]]
"""Store whether a suspect runs alone. Return False if this worker no longer holds the job."""


class ExclusiveRun:
    """Reservation of a worker's slots for one job that has to run alone."""

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
        """True if no other job may start."""
        return self._job is not None

    def reserve(self, job: ClaimedJob) -> None:
        """Reserve the slots for `job`: no other job starts from now on."""
        self._job = job
        self._others_finished.clear()
        self.check_alone()

    def check_alone(self) -> None:
        """Let the reserved job begin if no other job runs. Called whenever a job ends."""
        if self._job is not None and not self._count_others():
            self._others_finished.set()

    async def begin(self, job: ClaimedJob) -> bool:
        """Wait until the job is alone. Return False if this worker no longer holds it."""
        try:
            async with asyncio.timeout(HARMLESS_AFTER_SECONDS):
                await self._others_finished.wait()
        except TimeoutError:
            pass  # the other jobs have run long enough to be considered harmless
        if not await self._mark_exclusive(job, True):
            self.end(job)
            return False
        self._release_task = asyncio.create_task(self._release_after(job, HARMLESS_AFTER_SECONDS))
        return True

    def allow_others(self, job: ClaimedJob) -> None:
        """End the reservation of a job that only waits for other jobs.

        Such a job is harmless, and one of the awaited jobs may have to run in this worker.
        """
        if job is self._job and self._release_task is not None:
            self._release_task.cancel()
            self._release_task = asyncio.create_task(self._release_after(job, 0))

    async def _release_after(self, job: ClaimedJob, delay: float) -> None:
        await asyncio.sleep(delay)
        if await self._mark_exclusive(job, False):
            self._release(job)

    def end(self, job: ClaimedJob) -> None:
        """End the reservation of a job that has ended or whose claim was lost."""
        if self._release_task is not None and job is self._job:
            self._release_task.cancel()
            self._release_task = None
        self._release(job)

    def _release(self, job: ClaimedJob) -> None:
        if job is self._job:
            self._job = None
            self._on_released()
