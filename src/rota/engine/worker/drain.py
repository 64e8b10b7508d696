"""Graceful shutdown of a worker, without losing work:

     1  stop claiming: in this process, and in the registry, so that the claim statement refuses too
     2  return jobs to the queue that have not begun or only wait for other jobs
     3  wait for running jobs; their code can check `ctx.draining`
     4  shortly before the drain timeout, stop the rest; jobs that do not stop are returned all the same
     5  record the outcomes
     6  in a process that also serves requests: wait until the last one is answered
     7  stop the loops
     8  mark the worker as stopped in the registry
     9  stop the heartbeat; until here no other worker declares this one dead

`hurry`, for example after a second signal, skips to 4. All waits end at about the drain timeout, even if
the database does not answer.
"""

from __future__ import annotations

import asyncio
import logging
import time

from rota.engine.telemetry.event_bus import EventBus
from rota.engine.worker.session import WorkerSession, wait_at_most
from rota.model import events

log = logging.getLogger("rota")

MAX_MARGIN_SECONDS = 3.0
MIN_MARGIN_SECONDS = 1.0


class WorkerDrain:
    def __init__(
        self,
        session: WorkerSession,
        drain_timeout: float,
        event_bus: EventBus,
        requests_answered: asyncio.Event | None = None,
    ) -> None:
        self._session = session
        self._requests_answered = requests_answered
        self._event_bus = event_bus
        self._began = time.monotonic()
        # Time reserved for stopping jobs and recording outcomes.
        self._margin = max(min(MAX_MARGIN_SECONDS, drain_timeout / 4), MIN_MARGIN_SECONDS)
        self._deadline = self._began + drain_timeout
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        if not self._hurried.is_set():
            self._log("stopping now: running jobs are stopped and returned to the queue")
            self._deadline = min(self._deadline, time.monotonic() + self._margin)
            self._hurried.set()

    async def run(self) -> None:
        for step in (
            self._stop_claiming,
            self._return_unstarted,
            self._wait_for_jobs,
            self._stop_jobs,
            self._flush_outcomes,
            self._wait_for_requests,
            self._stop_loops,
            self._mark_stopped,
            self._stop_heartbeat,
        ):
            await step()

    async def _stop_claiming(self) -> None:
        session = self._session
        session.stop_claiming()
        drain_timeout, running = self._deadline - self._began, session.slots.running
        self._log(
            f"draining: {running} running, up to {drain_timeout:g} s for them"
            if running
            else "draining"
        )
        self._event_bus.publish(events.WorkerDraining(session.id))
        try:
            await wait_at_most(session.mark_draining(), min(self._margin, 1.0))
        except Exception as error:
            log.warning("worker %s could not be marked as draining: %s", session.id, error)

    async def _return_unstarted(self) -> None:
        returned = self._session.slots.return_unstarted(older_than=0)
        if returned:
            self._log(f"returned {returned} job(s) to the queue that had not started")
        self._session.slots.stop_parked()
        self._session.claim_loop.wake()

    async def _wait_for_jobs(self) -> None:
        slots, running_before = self._session.slots, self._session.slots.running
        empty = asyncio.create_task(slots.wait_empty())
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait(
                [empty, hurried],
                timeout=max(self._seconds_left() - self._margin, 0),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            empty.cancel()
            hurried.cancel()
        if running_before and not slots.running:
            self._log("all jobs have ended")

    async def _stop_jobs(self) -> None:
        slots = self._session.slots
        if not slots.running:
            return
        self._log(f"stopping {slots.running} that still run")
        slots.stop_all()
        if not await wait_at_most(slots.wait_empty(), max(self._seconds_left(), self._margin) / 2):
            self._log(f"giving back {slots.running} that would not stop")
            slots.abandon()

    async def _flush_outcomes(self) -> None:
        self._session.claim_loop.wake()
        if not await wait_at_most(
            self._session.wait_flushed(), max(self._seconds_left(), MIN_MARGIN_SECONDS / 2)
        ):
            self._log(
                "not every outcome was recorded in time; these jobs run again on other workers"
            )

    async def _wait_for_requests(self) -> None:
        if self._requests_answered is not None:
            answered = asyncio.create_task(self._requests_answered.wait())
            hurried = asyncio.create_task(self._hurried.wait())
            try:
                await asyncio.wait(
                    [answered, hurried],
                    timeout=max(self._seconds_left(), 0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                answered.cancel()
                hurried.cancel()

    async def _stop_loops(self) -> None:
        await self._session.stop(timeout=MIN_MARGIN_SECONDS / 2)

    async def _mark_stopped(self) -> None:
        await self._session.mark_stopped()

    async def _stop_heartbeat(self) -> None:
        await self._session.stop_heartbeat()
        self._log("left")

    def _seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    def _log(self, message: str) -> None:
        log.info("worker %s, %.1f s: %s", self._session.id, time.monotonic() - self._began, message)
