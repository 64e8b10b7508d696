"""Deletion of old rows apart from runs.

Deleted are cleared alerts, audit rows, idle rate limits and locks, and ended schedules that were created
at run time.

One worker of the fleet does this, as for runs. It reads rate limits and locks page by page and starts
over after the last. After a page with mostly old rows, the next one follows soon.
"""

from __future__ import annotations

import logging
import time

from rota.loop import Loop, with_jitter
from rota.store import retention
from rota.store.database import Database, run
from rota.store.retention import CleanResult

log = logging.getLogger("rota")

FIRST_CLEAN_SECONDS = 20.0
IDLE_PAUSE_SECONDS = 300.0
MORE_PAUSE_SECONDS = 1.0
"""Seconds before the first page, between pages, and between pages while there is more; before jitter."""

UNUSED_RETENTION_SECONDS = 30 * 86400.0
"""Seconds after which a lock that is not held, or a schedule that has ended, is deleted."""


async def clean(
    database: Database,
    after: CleanResult,
    *,
    worker: int | None = None,
    limit: int = retention.PAGE_ROWS,
) -> CleanResult | None:
    """Clean one page of each table in one transaction. Return None if it is another worker's turn."""
    settings = database.settings
    async with database.transaction() as connection:
        [may_clean] = await run(
            connection, retention.try_lock(database.schema, worker), database.schema
        )
        if not may_clean:
            return None
        query = retention.clean(
            settings.alert_retention,
            settings.audit_retention,
            UNUSED_RETENTION_SECONDS,
            after,
            limit,
        )
        [cleaned] = await run(connection, query, database.schema)
    return cleaned


class Cleaner(Loop):
    name = "cleaner"
    max_error_delay_seconds = IDLE_PAUSE_SECONDS

    def __init__(self, database: Database, worker: int) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._last_result = retention.FROM_START
        self._next_at = time.monotonic() + with_jitter(FIRST_CLEAN_SECONDS)

    async def tick(self) -> float | None:
        if (remaining := self._next_at - time.monotonic()) > 0:
            return remaining
        cleaned = await clean(self._database, self._last_result, worker=self._worker)
        if cleaned is not None:
            self._last_result = cleaned
            if cleaned.total:
                log.debug("removed %s old rows beside runs", cleaned.total)
        has_more = cleaned is not None and cleaned.total >= retention.PAGE_ROWS // 2
        self._next_at = time.monotonic() + with_jitter(
            MORE_PAUSE_SECONDS if has_more else IDLE_PAUSE_SECONDS
        )
        return max(self._next_at - time.monotonic(), 0.001)
