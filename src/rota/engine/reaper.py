"""Takes back what dead workers held, in every worker, whoever comes first.

The heart says who seems dead and that there are claims nobody looks after; here they are declared dead,
if nothing has been heard of them since, and their claims are gone through by id, each in a transaction of
its own that waits for nobody. Several reapers at once are harmless: of two that meet at a claim one
passes by. A claim that cannot be moved as a whole is moved job by job, and one that cannot be moved at
all keeps nobody else waiting.
"""

from __future__ import annotations

import logging
import time
from collections import Counter

from rota.engine.announce import Announcer
from rota.engine.heart import Pulse
from rota.engine.meters import Meters
from rota.engine.news import News
from rota.loop import Loop
from rota.model import events
from rota.store import claims, failures, waiters, workers
from rota.store.claims import Orphan
from rota.store.database import Database
from rota.store.jobs import Moved
from rota.store.workers import Seen

log = logging.getLogger("rota")

PAGE = 100
"""Claims looked at in one go."""

FORGET_AFTER = 24 * 3600.0
FORGET_EVERY = 600.0


class Reaper(Loop):
    longest_rest_after_error = 2.0

    def __init__(
        self,
        database: Database,
        worker: int,
        news: News,
        announcer: Announcer,
        meters: Meters | None = None,
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._news = news
        self._announcer = announcer
        self._meters = meters or Meters()
        self._dead: dict[int, Seen] = {}
        self._orphans = False
        self._forget_at = time.monotonic() + FORGET_EVERY

    def hear(self, pulse: Pulse) -> None:
        self._dead.update({each.worker: each for each in pulse.dead})
        self._orphans |= pulse.orphans
        if self._dead or self._orphans or time.monotonic() >= self._forget_at:
            self.wake()

    async def tick(self) -> None:
        if self._dead:
            await self._declare()
        if self._orphans:
            await self._reap()
            self._orphans = False
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_EVERY
            await self._database.run(workers.forget(FORGET_AFTER))

    async def _declare(self) -> None:
        seen = list(self._dead.values())
        declared = await self._database.run(workers.declare(seen))
        self._dead = {id: each for id, each in self._dead.items() if each not in seen}
        for each in declared:
            log.warning(
                "worker %s (%s, process %s) is dead: what it held goes back",
                each.worker,
                each.host,
                each.pid,
            )
            self._announcer.announce(events.WorkerDied(self._worker, each.worker))
        self._orphans |= bool(declared)
        self._meters.declared_dead += len(declared)

    async def _reap(self) -> None:
        after = 0
        taken: Counter[int] = Counter()
        while not self._stopped:
            page = await self._database.run(claims.orphans(after, PAGE))
            for orphan in page:
                after = orphan.id
                taken[orphan.worker] += await self._take_back(orphan)
            if len(page) < PAGE:
                break
        for worker, many in taken.items():
            if many:
                log.warning("took %s job(s) back from worker %s", many, worker)

    async def _take_back(self, orphan: Orphan) -> int:
        """Answers how many jobs went back."""
        moved = 0
        try:
            moved = await self._move(orphan)
        except Exception as error:
            if failures.is_contended(error):
                log.debug("claim %s is in somebody's hands: %s", orphan.id, error)
                return 0
            if failures.is_passing(error):
                raise
            log.error("claim %s cannot be taken back as a whole: %s", orphan.id, error)
            for job in orphan.jobs:
                try:
                    moved += await self._move(orphan, [job])
                except Exception as each:
                    if failures.is_passing(each) and not failures.is_contended(each):
                        raise
                    log.error("job %s of claim %s cannot be taken back: %s", job, orphan.id, each)
        return moved

    async def _move(self, orphan: Orphan, only: list[int] | None = None) -> int:
        [moved] = await self._database.run(claims.reap(orphan.id, only))
        if not moved.jobs:
            return 0
        await self._tell(moved)
        self._meters.reaped += len(moved.jobs)
        if self._announcer:
            jobs = tuple(moved.jobs)
            self._announcer.announce(events.JobsReaped(self._worker, orphan.worker, jobs))
        return len(moved.jobs)

    async def _tell(self, moved: Moved) -> None:
        # Of no consequence if it is lost: who waits also looks.
        self._news.tell([*moved.queues, waiters.LOST])
        await self._database.run(waiters.tell([*moved.jobs, *moved.runs]))
