"""Removes what is old beside runs: alerts that are over, what was done by hand, idle rates and locks,
schedules of run time that have ended.

Of all workers that are there one does this, as with runs. It goes through rates and locks a page at a time,
and begins again after the last; a page that was mostly old is soon followed by the next.
"""

from __future__ import annotations

import logging
import random
import time

from rota.loop import Loop
from rota.store import retention
from rota.store.database import Database, run
from rota.store.retention import Tidied

log = logging.getLogger("rota")

FIRST_LOOK = 20.0
LOOK = 300.0
SOON = 1.0
"""Seconds, about."""

FREE = 30 * 86400.0
"""Seconds after which nobody remembers a lock that nobody holds, or a schedule that has ended."""


async def tidy(
    database: Database, after: Tidied, *, worker: int | None = None, most: int = retention.PAGE
) -> Tidied | None:
    """One page of each, in a transaction of its own. None: it is not our turn."""
    settings = database.settings
    async with database.transaction() as connection:
        [ours] = await run(connection, retention.turn(database.schema, worker), database.schema)
        if not ours:
            return None
        query = retention.tidy(settings.keep_alerts, settings.keep_audit, FREE, after, most)
        [tidied] = await run(connection, query, database.schema)
    return tidied


class Tidy(Loop):
    longest_rest_after_error = LOOK

    def __init__(self, database: Database, worker: int) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._last = retention.FROM_THE_FIRST
        self._look_at = time.monotonic() + _about(FIRST_LOOK)

    async def tick(self) -> float | None:
        if (left := self._look_at - time.monotonic()) > 0:
            return left
        tidied = await tidy(self._database, self._last, worker=self._worker)
        if tidied is not None:
            self._last = tidied
            if tidied.gone:
                log.debug("removed %s old rows beside runs", tidied.gone)
        soon = tidied is not None and tidied.gone >= retention.PAGE // 2
        self._look_at = time.monotonic() + _about(SOON if soon else LOOK)
        return max(self._look_at - time.monotonic(), 0.001)


def _about(seconds: float) -> float:
    """Not all at the same moment."""
    return seconds * random.uniform(0.75, 1.25)
