"""Deletion of finished runs that are older than the retention settings allow.

One worker of the fleet does this, the one that was registered first. It reads ended runs in ascending
order, batch by batch. Each batch is a short transaction that neither waits for locks nor makes other
transactions wait. Then the pruner pauses several times as long as the batch took. At the first run that
is too young it stops, and continues from there at the next poll.

Runs that were passed over, because their retention is longer or they ended late, are found by starting
over from the first run. That happens as often as it is cheap: at every poll while few runs are passed
over, once an hour with millions. A worker that takes over also starts from the first run.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from rota.loop import Loop, with_jitter
from rota.model.retention import FOREVER, Retention
from rota.store import audit, retention
from rota.store.audit import AuditEntry
from rota.store.database import Database, run
from rota.store.retention import PrunableRow

log = logging.getLogger("rota")

FIRST_PRUNE_SECONDS = 5.0
"""Seconds from a worker's start to the first batch, before jitter: starting jobs comes first."""

IDLE_PAUSE_SECONDS = 60.0
"""Seconds between polls while there is nothing to delete, before jitter."""

PAUSE_FACTOR = 6.0
"""Pause after a batch, as a multiple of its duration, while there is more."""

RESTART_SECONDS_PER_BATCH = 20.0
"""Seconds until the pruner starts over, for each batch of the last pass."""

MAX_RESTART_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PrunedBatch:
    """Result of one batch."""

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
    by: str | None = None,
) -> PrunedBatch | None:
    """Delete one batch of runs above the id `after`, in one transaction.

    `by` names the operator in the audit log. Return None if it is another worker's turn.
    """
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
            if by is not None:
                counts = {
                    "runs": sum(row.runs for row in rows),
                    "jobs": sum(row.jobs for row in rows),
                }
                entry = AuditEntry(by, "prune runs", f"up to {found.position}", counts)
                await run(connection, audit.write_entry(entry), database.schema)
    return PrunedBatch(found.position, found.has_more, rows)


class Pruner(Loop):
    name = "pruner"
    max_error_delay_seconds = IDLE_PAUSE_SECONDS

    def __init__(self, database: Database, worker: int) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._retention = Retention.parse(database.settings.retention)
        self._position = 0
        self._batches = 0  # since it started over
        self._restart_at: float | None = None  # None: the pass has not reached its end
        self._next_at = time.monotonic() + with_jitter(FIRST_PRUNE_SECONDS)

    async def tick(self) -> float | None:
        began = time.monotonic()
        if self._retention.min_age == FOREVER:
            return None
        if began < self._next_at:
            return self._next_at - began
        pruned = await prune(self._database, self._retention, self._position, worker=self._worker)
        now = time.monotonic()
        if pruned is None:
            return self._pause(now, with_jitter(IDLE_PAUSE_SECONDS))
        if pruned.rows:
            log.debug("removed %s old runs", pruned.runs)
        self._position = pruned.position
        self._batches += 1
        if pruned.has_more:
            return self._pause(now, PAUSE_FACTOR * (now - began))
        self._on_end_reached(now)
        return self._pause(now, with_jitter(IDLE_PAUSE_SECONDS))

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
