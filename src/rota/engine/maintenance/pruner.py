"""Removes finished runs that are older than the settings say.

Of all workers that are there one does this, the one that has been there longest. It goes up through what
has ended, a batch at a time, each in a short transaction that waits for nobody and that nobody waits for,
and rests several times as long as a batch took. When it comes to what is too young it stays there, and
goes on from there at the next look.

What it passed by, because its time is longer or it ended late, is found by beginning again from the first.
That is done as often as it is cheap: at every look while there is little to pass by, once an hour beside
millions. A worker that takes over begins so, too.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass

from rota.loop import Loop
from rota.model.retention import FOREVER, Retention
from rota.store import retention
from rota.store.database import Database, run
from rota.store.retention import PrunableRow

log = logging.getLogger("rota")

FIRST_PRUNE_SECONDS = 5.0
"""Seconds after a worker's start, about: it has better things to do first."""

IDLE_PAUSE_SECONDS = 60.0
"""Seconds between looks, about, while there is nothing to do."""

PAUSE_FACTOR = 6.0
"""While there is more, it rests so many times as long as it worked."""

RESTART_SECONDS_PER_BATCH = 20.0
"""Seconds until it begins again from the first, for each batch that took the last time."""

MAX_RESTART_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PrunedBatch:
    """What one batch came to."""

    position: int
    has_more: bool
    rows: list[PrunableRow]

    @property
    def runs(self) -> int:
        return sum(row.runs for row in self.rows)


async def prune(
    database: Database,
    policy: Retention,
    after: int,
    *,
    worker: int | None = None,
    dry_run: bool = False,
    limit: int = retention.BATCH_JOBS,
) -> PrunedBatch | None:
    """One batch, going up from an id, in a transaction of its own. None: it is not our turn."""
    async with database.transaction() as connection:
        [may_prune] = await run(
            connection, retention.try_lock(database.schema, worker), database.schema
        )
        if not may_prune:
            return None
        [found] = await run(connection, retention.find(policy, after, limit), database.schema)
        rows = found.rows
        if rows and not dry_run:
            rows = await run(connection, retention.remove(found), database.schema)
    return PrunedBatch(found.position, found.has_more, rows)


class Pruner(Loop):
    max_error_delay_seconds = IDLE_PAUSE_SECONDS

    def __init__(self, database: Database, worker: int) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._retention = Retention.parse(database.settings.retention)
        self._position = 0
        self._batches = 0  # since it began from the first
        self._restart_at: float | None = None  # None: it is on its way from there
        self._next_at = time.monotonic() + _with_jitter(FIRST_PRUNE_SECONDS)

    async def tick(self) -> float | None:
        began = time.monotonic()
        if self._retention.min_age == FOREVER:
            return None
        if began < self._next_at:
            return self._next_at - began
        pruned = await prune(self._database, self._retention, self._position, worker=self._worker)
        now = time.monotonic()
        if pruned is None:
            return self._pause(now, _with_jitter(IDLE_PAUSE_SECONDS))
        if pruned.rows:
            log.debug("removed %s old runs", pruned.runs)
        self._position = pruned.position
        self._batches += 1
        if pruned.has_more:
            return self._pause(now, PAUSE_FACTOR * (now - began))
        self._on_end_reached(now)
        return self._pause(now, _with_jitter(IDLE_PAUSE_SECONDS))

    def _on_end_reached(self, now: float) -> None:
        if self._restart_at is None:
            self._restart_at = now + min(
                RESTART_SECONDS_PER_BATCH * self._batches, MAX_RESTART_SECONDS
            )
        if now + IDLE_PAUSE_SECONDS >= self._restart_at:
            self._position = 0
            self._batches = 0
            self._restart_at = None

    def _pause(self, now: float, seconds: float) -> float:
        self._next_at = now + seconds
        return seconds


def _with_jitter(seconds: float) -> float:
    """Not all at the same moment."""
    return seconds * random.uniform(0.75, 1.25)
