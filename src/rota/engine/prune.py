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
from rota.model.retention import FOREVER, Keep
from rota.store import retention
from rota.store.database import Database, run
from rota.store.retention import Line

log = logging.getLogger("rota")

FIRST_LOOK = 5.0
"""Seconds after a worker's start, about: it has better things to do first."""

LOOK = 60.0
"""Seconds between looks, about, while there is nothing to do."""

REST = 6.0
"""While there is more, it rests so many times as long as it worked."""

AGAIN_AFTER = 20.0
"""Seconds until it begins again from the first, for each batch that took the last time."""

AGAIN_AT_LAST = 3600.0


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one batch came to."""

    position: int
    more: bool
    lines: list[Line]

    @property
    def runs(self) -> int:
        return sum(line.runs for line in self.lines)


async def prune(
    database: Database,
    keep: Keep,
    after: int,
    *,
    worker: int | None = None,
    only_look: bool = False,
    most: int = retention.MOST,
) -> Pruned | None:
    """One batch, going up from an id, in a transaction of its own. None: it is not our turn."""
    async with database.transaction() as connection:
        [ours] = await run(connection, retention.turn(database.schema, worker), database.schema)
        if not ours:
            return None
        [found] = await run(connection, retention.find(keep, after, most), database.schema)
        lines = found.lines
        if lines and not only_look:
            lines = await run(connection, retention.remove(found), database.schema)
    return Pruned(found.position, found.more, lines)


class Prune(Loop):
    longest_rest_after_error = LOOK

    def __init__(self, database: Database, worker: int) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._keep = Keep.parse(database.settings.keep)
        self._position = 0
        self._batches = 0  # since it began from the first
        self._again_at: float | None = None  # None: it is on its way from there
        self._look_at = time.monotonic() + _about(FIRST_LOOK)

    async def tick(self) -> float | None:
        began = time.monotonic()
        if self._keep.shortest == FOREVER:
            return None
        if began < self._look_at:
            return self._look_at - began
        pruned = await prune(self._database, self._keep, self._position, worker=self._worker)
        now = time.monotonic()
        if pruned is None:
            return self._rest(now, _about(LOOK))
        if pruned.lines:
            log.debug("removed %s old runs", pruned.runs)
        self._position = pruned.position
        self._batches += 1
        if pruned.more:
            return self._rest(now, REST * (now - began))
        self._reached_the_end(now)
        return self._rest(now, _about(LOOK))

    def _reached_the_end(self, now: float) -> None:
        if self._again_at is None:
            self._again_at = now + min(AGAIN_AFTER * self._batches, AGAIN_AT_LAST)
        if now + LOOK >= self._again_at:
            self._position = 0
            self._batches = 0
            self._again_at = None

    def _rest(self, now: float, rest: float) -> float:
        self._look_at = now + rest
        return rest


def _about(seconds: float) -> float:
    """Not all at the same moment."""
    return seconds * random.uniform(0.75, 1.25)
