"""Writes down, minute by minute, what a worker has counted: for plots, and for whoever decides how many
workers there are to be.

What was counted of a minute so far is written every few seconds, if something was; nobody who has nothing
to do writes anything. An answer that never came is no harm: the same is written again, and counts once.
A worker that dies takes a few seconds of its counts with it, and nothing else.

At the beginning of every minute one worker of all writes down how deep the queues are. Now and then what is
old is folded together, and what is too old removed.
"""

from __future__ import annotations

import logging
import random
import time

from rota.engine.clock import Clock
from rota.engine.meters import COUNTS, Line, Meters, Place
from rota.loop import Loop
from rota.store import meters as store
from rota.store.database import Database

log = logging.getLogger("rota")

WRITE_EVERY = 5.0
TIDY_EVERY = 600.0
"""Seconds."""

ROUNDS = 20
"""Statements that one tidying takes, at most: the rest can wait."""

REMEMBER = 30
"""Minutes of which it is known what was written."""

SUMS = (*COUNTS, "attempts", "took", "waits", "waited")
Sums = dict[str, float]


class Tally(Loop):
    longest_rest_after_error = 30.0

    def __init__(self, database: Database, worker: int, clock: Clock, meters: Meters) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._clock = clock
        self._meters = meters
        self._seen: dict[Place, Sums] = {}  # as it was when it was last looked at
        self._minutes: dict[int, dict[Place, Sums]] = {}  # what each has come to
        self._unwritten: set[tuple[int, Place]] = set()
        self._sampled: int | None = None
        self._tidy_at = time.monotonic() + TIDY_EVERY * random.uniform(0.1, 1.0)

    async def tick(self) -> float:
        minute, rest = self._now()
        self._look(minute)
        if self._unwritten:
            await self._write()
        if self._sampled is None:
            self._sampled = minute  # it has begun without us
        if minute != self._sampled:
            await self._database.run(store.sample(self._worker))
            self._sampled = minute
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_EVERY * random.uniform(0.75, 1.25)
            await self._tidy()
        return min(WRITE_EVERY, rest)

    async def close(self) -> None:
        """Write down what is left, if that can be done: nobody stays for it."""
        self._look(self._now()[0])
        if self._unwritten:
            try:
                await self._write()
            except Exception as error:
                log.debug("what was counted last is not written down: %s", error)

    def _now(self) -> tuple[int, float]:
        """The minute it is, and how many seconds are left of it."""
        minute, past = divmod(self._clock.now().timestamp(), 60.0)
        return int(minute), max(60.0 - past, 0.01)

    def _look(self, minute: int) -> None:
        """What was counted since the last look belongs to this minute."""
        for place, line in list(self._meters.lines.items()):
            now, before = _sums(line), self._seen.get(place)
            if now == before:
                continue
            known = self._minutes.setdefault(minute, {}).setdefault(place, {})
            for name, value in now.items():
                known[name] = known.get(name, 0) + value - (before[name] if before else 0)
            for name, largest in (
                ("longest", line.took.take_largest()),
                ("longest_wait", line.waited.take_largest()),
            ):
                known[name] = max(known.get(name, 0.0), largest)
            self._seen[place] = now
            self._unwritten.add((minute, place))

    async def _write(self) -> None:
        writing = sorted(self._unwritten)
        tallies = [
            store.Tally(minute, *place, **self._minutes[minute][place])  # type: ignore[arg-type]
            for minute, place in writing
        ]
        await self._database.run(store.flush(self._worker, tallies))
        self._unwritten.difference_update(writing)
        for minute in sorted(self._minutes)[:-REMEMBER]:
            if not any(each == minute for each, _ in self._unwritten):
                del self._minutes[minute]

    async def _tidy(self) -> None:
        for query in (store.fold(), store.forget()):
            for _ in range(ROUNDS):
                [many] = await self._database.run(query)
                if many < store.SOME:
                    break


def _sums(line: Line) -> Sums:
    sums: Sums = {name: getattr(line, name) for name in COUNTS}
    sums["attempts"], sums["took"] = line.took.count, line.took.total
    sums["waits"], sums["waited"] = line.waited.count, line.waited.total
    return sums
