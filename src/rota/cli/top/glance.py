"""One look at everything that moves: a few short questions in a few round trips.

How fast a queue goes is what workers have counted of it, which they write down every few seconds: between
two looks nothing may have moved, so it is taken over the last quarter of a minute.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from rota.app import listing
from rota.store import live, meters, standing, views
from rota.store.database import Database
from rota.store.listing import Matching
from rota.store.live import DepthLine, PaceLine
from rota.store.meters import Fleet
from rota.store.query import Query
from rota.store.standing import AlertLine
from rota.store.views import RunLine, WorkerDetail

OVER = 15.0
"""Seconds a speed is taken over."""

KEPT = 600.0
"""Seconds after which nothing more is told of a minute, and its figures are as they are."""

RUNS = 40
ALERTS = 10
RUNNING = Matching(states=("running",))


class QueueSight(msgspec.Struct, frozen=True):
    queue: str
    ready: int
    exact: bool
    oldest: float | None
    workers: int
    """Those that serve it."""
    ended: float
    """Jobs a second."""
    failed: float
    retried: float
    paused: bool
    waited: float | None
    """Seconds a job had waited to be taken, on average; None: none was taken lately."""


class Sight(msgspec.Struct, frozen=True):
    at: datetime
    fleet: Fleet
    queues: list[QueueSight]
    workers: list[WorkerDetail]
    runs: list[RunLine]
    alerts: list[AlertLine]
    patience: float
    """Seconds without a beat, after which a worker is late."""


@dataclass(slots=True)
class Sums:
    """What was counted of a queue, up to one moment."""

    ended: int = 0
    failed: int = 0
    retried: int = 0
    waits: int = 0
    waited: float = 0.0

    def count(self, line: PaceLine) -> None:
        self.ended += line.ended
        self.failed += line.failed
        self.retried += line.retried
        self.waits += line.waits
        self.waited += line.waited

    def less(self, other: Sums) -> Sums:
        return Sums(
            self.ended - other.ended,
            self.failed - other.failed,
            self.retried - other.retried,
            self.waits - other.waits,
            self.waited - other.waited,
        )


@dataclass(slots=True)
class Paces:
    """Keeps what was counted, minute by minute, so that what is forgotten later stays counted."""

    _minutes: dict[tuple[str, int], PaceLine] = field(default_factory=dict)
    _base: dict[str, Sums] = field(default_factory=dict)
    """What minutes came to that are not kept any more: sums never go back, or speeds would be below 0."""
    _seen: deque[tuple[float, dict[str, Sums]]] = field(default_factory=deque)

    def add(self, now: float, lines: list[PaceLine]) -> None:
        for each in lines:
            self._minutes[each.queue, each.minute] = each
        for queue, minute in [key for key in self._minutes if key[1] <= now - KEPT]:
            self._base.setdefault(queue, Sums()).count(self._minutes.pop((queue, minute)))
        sums = {queue: replace(each) for queue, each in self._base.items()}
        for each in self._minutes.values():
            sums.setdefault(each.queue, Sums()).count(each)
        self._seen.append((now, sums))
        while len(self._seen) > 2 and self._seen[1][0] <= now - OVER:
            self._seen.popleft()

    def of(self, queue: str) -> tuple[Sums, float]:
        """What was counted lately, and in how many seconds."""
        first, before = self._seen[0]
        last, after = self._seen[-1]
        now = after.get(queue, Sums())
        if len(self._seen) == 1:
            # The first look: what the minute before this one and this one have come to.
            begun = min((minute for _, minute in self._minutes), default=last)
            return now, max(last - begun, 1.0)
        return now.less(before.get(queue, Sums())), max(last - first, 0.001)


class Glance:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._paces = Paces()

    async def look(self) -> Sight:
        patience = self._database.settings.dead_after
        [[[at], [fleet], depths, paces, workers, alerts]] = await self._database.exchange(
            [
                [
                    views.clock(),
                    meters.fleet(patience),
                    live.depths(),
                    live.pace(),
                    views.workers(),
                    standing.alerts(limit=ALERTS),
                ]
            ]
        )
        self._paces.add(at.timestamp(), paces)
        seen = self._queues(depths, paces, workers, set(fleet.paused))
        return Sight(at, fleet, seen, workers, await self._runs(), alerts, patience)

    async def _runs(self) -> list[RunLine]:
        found = await listing.find(self._ask, RUNNING, RUNS)
        return await listing.lines(self._ask, RUNNING, found.spots)

    async def _ask(self, *queries: Query[Any]) -> list[Any]:
        [answers] = await self._database.exchange([queries])
        return list(answers)

    def _queues(
        self,
        depths: list[DepthLine],
        paces: list[PaceLine],
        workers: list[WorkerDetail],
        paused: set[str],
    ) -> list[QueueSight]:
        """Every queue that anything waits in or came out of lately, that anybody serves or has paused."""
        waits = {each.queue: each for each in depths}
        served = {name for each in workers for name in each.queues}
        found = []
        for queue in sorted(waits.keys() | served | paused | {each.queue for each in paces}):
            depth = waits.get(queue) or DepthLine(queue, 0, True, None)
            sums, seconds = self._paces.of(queue)
            found.append(
                QueueSight(
                    queue,
                    depth.ready,
                    depth.exact,
                    depth.oldest,
                    sum(queue in each.queues for each in workers if each.state == "active"),
                    sums.ended / seconds,
                    sums.failed / seconds,
                    sums.retried / seconds,
                    queue in paused,
                    sums.waited / sums.waits if sums.waits > 0 else None,
                )
            )
        return found
