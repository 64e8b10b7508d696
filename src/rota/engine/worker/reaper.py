"""Reaper: takes back the jobs of dead workers. Every worker runs one.

The heartbeat reports workers that look dead, and whether there are orphaned claims. The reaper then

    1. declares those workers dead, unless they have beaten since they were observed
    2. takes back the orphaned claims in the order of their ids, each in its own transaction

A transaction skips a claim that is locked, so several reapers can run at once. A claim that cannot be taken
back as a whole is taken back job by job. A claim that cannot be taken back at all does not delay the rest.
"""

from __future__ import annotations

import logging
import time
from collections import Counter

from rota.engine.notify.notifier import Notifier
from rota.engine.telemetry.counters import Counters
from rota.engine.telemetry.event_bus import EventBus
from rota.engine.worker.heartbeat import BeatResult
from rota.loop import Loop
from rota.model import events
from rota.store import claims, listeners, pg_errors, workers
from rota.store.claims import OrphanedClaim
from rota.store.database import Database
from rota.store.jobs import MoveResult
from rota.store.workers import ObservedWorker

log = logging.getLogger("rota")

CLAIMS_PER_PAGE = 100
"""Orphaned claims read in one query."""

ENDED_WORKER_RETENTION_SECONDS = 24 * 3600.0
ENDED_WORKER_CLEANUP_SECONDS = 600.0


class Reaper(Loop):
    name = "reaper"
    max_error_delay_seconds = 2.0

    def __init__(
        self,
        database: Database,
        worker: int,
        notifier: Notifier,
        event_bus: EventBus,
        counters: Counters | None = None,
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._notifier = notifier
        self._event_bus = event_bus
        self._counters = counters or Counters()
        self._dead_workers: dict[int, ObservedWorker] = {}
        self._has_orphans = False
        self._next_cleanup_at = time.monotonic() + ENDED_WORKER_CLEANUP_SECONDS

    def on_beat(self, result: BeatResult) -> None:
        self._dead_workers.update({each.worker: each for each in result.dead_workers})
        self._has_orphans |= result.has_orphans
        if self._dead_workers or self._has_orphans or time.monotonic() >= self._next_cleanup_at:
            self.wake()

    async def tick(self) -> None:
        if self._dead_workers:
            await self._declare_dead()
        if self._has_orphans:
            await self._reap()
            self._has_orphans = False
        if time.monotonic() >= self._next_cleanup_at:
            self._next_cleanup_at = time.monotonic() + ENDED_WORKER_CLEANUP_SECONDS
            await self._database.run(workers.delete_ended(ENDED_WORKER_RETENTION_SECONDS))

    async def _declare_dead(self) -> None:
        observed = list(self._dead_workers.values())
        declared = await self._database.run(workers.mark_dead(observed))
        self._dead_workers = {
            id: each for id, each in self._dead_workers.items() if each not in observed
        }
        for each in declared:
            log.warning(
                "worker %s (%s, process %s) is dead; its jobs return to the queue",
                each.worker,
                each.host,
                each.pid,
            )
            self._event_bus.publish(events.WorkerDied(self._worker, each.worker))
        self._has_orphans |= bool(declared)
        self._counters.declared_dead += len(declared)

    async def _reap(self) -> None:
        after = 0
        taken_back: Counter[int] = Counter()
        while not self._stopped:
            page = await self._database.run(claims.orphans(after, CLAIMS_PER_PAGE))
            for orphan in page:
                after = orphan.id
                taken_back[orphan.worker] += await self._take_back(orphan)
            if len(page) < CLAIMS_PER_PAGE:
                break
        for worker, count in taken_back.items():
            if count:
                log.warning("took %s job(s) back from worker %s", count, worker)

    async def _take_back(self, orphan: OrphanedClaim) -> int:
        """Take back the jobs of a claim, if need be one by one; return how many were taken back."""
        count = 0
        try:
            count = await self._reap_claim(orphan)
        except Exception as error:
            if pg_errors.is_contended(error):
                log.debug("claim %s is locked by another transaction: %s", orphan.id, error)
                return 0
            if pg_errors.is_transient(error):
                raise
            log.error("claim %s cannot be taken back as a whole: %s", orphan.id, error)
            for job in orphan.jobs:
                try:
                    count += await self._reap_claim(orphan, [job])
                except Exception as each:
                    if pg_errors.is_transient(each) and not pg_errors.is_contended(each):
                        raise
                    log.error("job %s of claim %s cannot be taken back: %s", job, orphan.id, each)
        return count

    async def _reap_claim(self, orphan: OrphanedClaim, only_jobs: list[int] | None = None) -> int:
        [move] = await self._database.run(claims.reap(orphan.id, only_jobs))
        if not move.jobs:
            return 0
        await self._notify(move)
        self._counters.reaped += len(move.jobs)
        if self._event_bus:
            jobs = tuple(move.jobs)
            self._event_bus.publish(events.JobsReaped(self._worker, orphan.worker, jobs))
        return len(move.jobs)

    async def _notify(self, move: MoveResult) -> None:
        # Losing this notification is safe: waiters also poll.
        self._notifier.notify([*move.queues, listeners.JOBS_LOST])
        await self._database.run(listeners.notify_waiters([*move.jobs, *move.runs]))
