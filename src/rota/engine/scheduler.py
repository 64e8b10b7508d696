"""Starts the runs of schedules when their ticks come. Any worker does it; `firing` says how, and why no
tick is started twice.

When to look is told by the worker's polls, which ask for the next due time on their way; this loop rests
until then, and has no query of its own while nothing is due. If nothing is heard of the polls, as when
the worker is full and asks for no jobs, it looks by itself.

A poll speaks of all schedules that there are. What is due and cannot be started here, because another
has it in hand or because nobody here knows its target, is not looked at again at once, but later each time.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rota.engine import firing
from rota.engine.announce import Announcer
from rota.engine.firing import Fired, Make, Overtaken, told
from rota.engine.meters import Meters
from rota.engine.misfits import Misfits
from rota.engine.news import News
from rota.engine.schedules import declare
from rota.engine.tracing import Tracing
from rota.loop import Loop
from rota.model import events
from rota.store import failures, schedules, ticks
from rota.store.database import Database, run
from rota.store.query import Query
from rota.store.schedules import Definition

log = logging.getLogger("rota")

Row = TypeVar("Row")

UNTOLD = 2.0
"""Seconds without word from the polls after which this loop looks by itself, at least."""

FIRST_MISS = 0.02
IN_HAND = 0.5
NOT_OURS = 5.0
"""Seconds before something that is due and was not ours to start is looked at again: at first, at last if
another has it in hand, and at last if nobody here knows it."""

IN_THE_WAY = 5.0
"""Seconds for which a schedule is put off that somebody was in the way of."""

SWEEP = 5.0
REST = 30.0
"""Seconds between looks at what has become of runs, while some are open and while none is."""

DECLARE_FIRST = 3.0
DECLARE = 60.0
"""Seconds, about, after which it is seen to that schedules are as the code says which is there: first, for
nobody knew of this worker while it started, and again and again, for another may have started, changed
them, and gone.
"""


class Scheduler(Loop):
    longest_rest_after_error = 2.0

    def __init__(
        self,
        database: Database,
        news: News,
        announcer: Announcer,
        worker: int,
        targets: Mapping[str, Make],
        tracing: Tracing | None = None,
        declared: Sequence[Definition] = (),
    ) -> None:
        super().__init__()
        self._database = database
        self._news = news
        self._declared = declared
        self._announcer = announcer
        self._worker = worker
        self._targets = targets
        self.meters = Meters()
        self._tracing = tracing
        self._who = (socket.gethostname(), os.getpid())
        self._untold = max(UNTOLD, 3 * database.settings.poll)
        self._changed = True
        self._look_at = 0.0
        self._sweep_at = time.monotonic() + random.uniform(0, SWEEP)
        self._declare_at = time.monotonic() + _about(DECLARE_FIRST)
        self._misses = 0  # in a row: looks at something due that was not ours to start
        self._missed_at = 0.0
        self._overdue = False  # whether something was due when a poll asked
        self._strange: set[str] = set()
        self._slow: set[str] = set()  # those over which it took too long here, the last time
        self._misfits = Misfits()

    # What others say

    def hear(self, due: float | None) -> None:
        """A poll has asked when the next schedule is due, of all there are: in so many seconds; None: there
        is none."""
        now = time.monotonic()
        if due is None or due > 0:
            self._misses = 0
            self._look_at = now + (self._untold if due is None else min(due, self._untold))
        else:
            self._overdue = True
            again = self._missed_at + min(FIRST_MISS * 2.0**self._misses, NOT_OURS)
            self._look_at = min(self._look_at, max(now, again))
        self.wake()

    def look(self) -> None:
        """There is news of schedules."""
        self._changed = True
        self.wake()

    # The loop

    async def tick(self) -> float | None:
        if not self._targets:
            return None
        if self._changed or time.monotonic() >= self._look_at:
            await self._look()
        elif time.monotonic() >= self._sweep_at:
            await self._sweep()
        elif time.monotonic() >= self._declare_at:
            self._declare_at = time.monotonic() + _about(DECLARE)
            await declare(self._database, self._declared, list(self._targets), self._worker)
        return max(min(self._look_at, self._sweep_at, self._declare_at) - time.monotonic(), 0.001)

    async def _look(self) -> None:
        # Before anything is asked: what is heard meanwhile may be newer than the answer.
        now = time.monotonic()
        self._look_at = now + self._untold
        if self._changed:
            self._changed = False
            self._misses = 0
        seen, rest = False, 0.0
        if self._misses:
            rest = await self._rest()
        if rest <= 0:
            seen = await self.fire()
            rest = await self._rest()
        if seen:
            self._misses = 0
            self._sweep_at = min(self._sweep_at, now + SWEEP)
        else:
            self._missed_at = now
            self._misses = min(self._misses + 1, 10)
            if rest <= 0:
                rest = min(FIRST_MISS * 2.0**self._misses, IN_HAND)
        self._look_at = min(self._look_at, time.monotonic() + rest)

    async def _rest(self) -> float:
        """Seconds until the next one is due that can be started here."""
        others = self._misfits.left_to_others()
        [rest] = await self._ask(ticks.next_due(list(self._targets), others))
        return math.inf if rest is None else rest

    async def _ask(self, query: Query[Row]) -> list[Row]:
        [[_, rows]] = await self._database.exchange([[ticks.hurry(), query]])
        return rows

    # What is due

    async def fire(self) -> bool:
        """See to what is due. Answers whether there was something to see to."""
        try:
            fired = await self._fire()
        except Exception as error:
            if _is_away(error):
                raise
            # One is in the way of the others, and nobody says which.
            log.warning("schedules that are due are seen to one by one: %s", told(error))
            others = self._misfits.left_to_others()
            fired = Fired(alone=await self._ask(ticks.names_due(list(self._targets), others)))
        for name in fired.alone:
            await self._fire_alone(name)
        return bool(fired.seen or fired.alone)

    async def _fire_alone(self, name: str) -> None:
        try:
            await self._fire(name)
            self._slow.discard(name)
        except Exception as error:
            if _is_away(error):
                raise
            log.error("schedule %r is put off: %s", name, told(error))
            # Once, it may have been this process that stood still, whatever the schedule.
            stood_still = _took_too_long(error) and name not in self._slow
            (self._slow.add if stood_still else self._slow.discard)(name)
            passing = stood_still or failures.is_contended(error)
            why, seconds = (None, IN_THE_WAY) if passing else (told(error), firing.PUT_OFF)
            await self._database.run(ticks.put_off({name: why}, seconds))

    async def _fire(self, name: str | None = None) -> Fired:
        try:
            fired = await firing.fire(
                self._database, self._targets, self._who, self._misfits, name, self._tracing
            )
        except Overtaken as error:
            log.debug("%s", error)
            return Fired()
        self._news.tell(fired.queues)
        for late in fired.lateness:
            self.meters.lateness.add(late)
        if self._announcer:
            for (schedule, tick), id in fired.started.items():
                self._announcer.announce(
                    events.ScheduleTicked(self._worker, schedule, tick.isoformat(), id)
                )
        return fired

    # What has become of it

    async def _sweep(self) -> None:
        """Note what has become of runs, and tell of schedules that nobody can start."""
        now = time.monotonic()
        self._sweep_at = now + SWEEP
        if self._overdue:
            self._overdue = False
            await self._tell_of_strangers()
        [state] = await self._ask(ticks.open_ones())
        if not state.open:
            self._sweep_at = now + _about(REST)
        if not state.ended:
            return
        schema = self._database.schema
        async with self._database.transaction() as connection:
            await run(connection, ticks.hurry(), schema)
            held = await run(connection, ticks.hold(state.ended), schema)
            found = await run(connection, ticks.settle(held), schema) if held else []
        for each in found:
            if each.paused:
                log.warning("schedule %r is paused: it has failed too often", each.name)

    async def _tell_of_strangers(self) -> None:
        """They are kept as they are: the worker that knows them may be on its way."""
        for each in await self._database.run(schedules.strangers(list(self._targets))):
            if each.name not in self._strange:
                self._strange.add(each.name)
                log.warning(
                    "schedule %r is due, and nobody knows %s: it starts nothing until a worker does",
                    each.name,
                    each.what,
                )


def _is_away(error: Exception) -> bool:
    """Whether it is the database that fails, not what was asked of it: then nothing has happened."""
    if _took_too_long(error):
        return False  # over one of them
    return failures.is_passing(error) and not failures.is_contended(error)


def _took_too_long(error: Exception) -> bool:
    return failures.sqlstate(error).startswith("25P0")


def _about(seconds: float) -> float:
    """Not all at the same moment."""
    return seconds * random.uniform(0.75, 1.25)
