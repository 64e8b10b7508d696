"""Snapshot of the fleet, read with a few short queries.

The rate of a queue comes from the workers' counts. Workers write them every few seconds, so two
snapshots may show no change; rates are therefore averaged over 15 seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from rota.operations import run_search
from rota.store import metrics
from rota.store.database import Database
from rota.store.metrics import FleetTotals
from rota.store.query import Query
from rota.store.read import coordination, live
from rota.store.read import runs as read_runs
from rota.store.read.coordination import AlertRow
from rota.store.read.live import MinuteRateRow, QueueDepthRow
from rota.store.read.run_list import RunFilter
from rota.store.read.runs import RunRow, WorkerDetailRow

RATE_WINDOW_SECONDS = 15.0
"""Period over which rates are averaged."""

MINUTE_FINAL_SECONDS = 600.0
"""Age after which the counts of a minute no longer change."""

MAX_RUNS = 40
MAX_ALERTS = 10
RUNNING_FILTER = RunFilter(states=("running",))


class QueueSnapshot(msgspec.Struct, frozen=True):
    queue: str
    queued: int
    is_exact: bool
    oldest: float | None
    workers: int
    """Active workers that serve the queue."""
    ended_rate: float
    """Jobs per second."""
    failed_rate: float
    retried_rate: float
    paused: bool
    mean_wait: float | None
    """Mean time in the queue of recently claimed jobs; None if there are none."""


class TopSnapshot(msgspec.Struct, frozen=True):
    at: datetime
    totals: FleetTotals
    queues: list[QueueSnapshot]
    workers: list[WorkerDetailRow]
    runs: list[RunRow]
    alerts: list[AlertRow]
    dead_after: float
    """Seconds without a heartbeat after which a worker is silent."""


@dataclass(slots=True)
class QueueTotals:
    """Cumulative counts of a queue."""

    ended: int = 0
    failed: int = 0
    retried: int = 0
    wait_count: int = 0
    wait_seconds: float = 0.0

    def add(self, row: MinuteRateRow) -> None:
        self.ended += row.ended
        self.failed += row.failed
        self.retried += row.retried
        self.wait_count += row.wait_count
        self.wait_seconds += row.wait_seconds

    def minus(self, other: QueueTotals) -> QueueTotals:
        return QueueTotals(
            self.ended - other.ended,
            self.failed - other.failed,
            self.retried - other.retried,
            self.wait_count - other.wait_count,
            self.wait_seconds - other.wait_seconds,
        )


@dataclass(slots=True)
class ThroughputWindow:
    """Counts by minute, kept so that totals do not shrink when old minutes are dropped."""

    _minutes: dict[tuple[str, int], MinuteRateRow] = field(default_factory=dict)
    _base: dict[str, QueueTotals] = field(default_factory=dict)
    """Sums of dropped minutes: totals never decrease, else rates would be negative."""
    _history: deque[tuple[float, dict[str, QueueTotals]]] = field(default_factory=deque)

    def add(self, now: float, rows: list[MinuteRateRow]) -> None:
        for each in rows:
            self._minutes[each.queue, each.minute] = each
        for queue, minute in [key for key in self._minutes if key[1] <= now - MINUTE_FINAL_SECONDS]:
            self._base.setdefault(queue, QueueTotals()).add(self._minutes.pop((queue, minute)))
        sums = {queue: replace(each) for queue, each in self._base.items()}
        for each in self._minutes.values():
            sums.setdefault(each.queue, QueueTotals()).add(each)
        self._history.append((now, sums))
        while len(self._history) > 2 and self._history[1][0] <= now - RATE_WINDOW_SECONDS:
            self._history.popleft()

    def recent(self, queue: str) -> tuple[QueueTotals, float]:
        """Return the counts within the window, and its length in seconds."""
        first, before = self._history[0]
        last, after = self._history[-1]
        latest = after.get(queue, QueueTotals())
        if len(self._history) == 1:
            # First snapshot: the counts of the current and previous minutes.
            first_minute = min((minute for _, minute in self._minutes), default=last)
            return latest, max(last - first_minute, 1.0)
        return latest.minus(before.get(queue, QueueTotals())), max(last - first, 0.001)


class SnapshotReader:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._throughput = ThroughputWindow()

    async def read(self) -> TopSnapshot:
        dead_after = self._database.settings.dead_after
        [[[at], [totals], depths, rates, workers, alerts]] = await self._database.pipeline(
            [
                [
                    read_runs.database_time(),
                    metrics.fleet_totals(dead_after),
                    live.queue_depths(),
                    live.minute_rates(),
                    read_runs.workers(),
                    coordination.alerts(limit=MAX_ALERTS),
                ]
            ]
        )
        self._throughput.add(at.timestamp(), rates)
        queues = self._queues(depths, rates, workers, set(totals.paused_queues))
        return TopSnapshot(at, totals, queues, workers, await self._runs(), alerts, dead_after)

    async def _runs(self) -> list[RunRow]:
        found = await run_search.find_runs(self._fetch, RUNNING_FILTER, MAX_RUNS)
        return await run_search.load_rows(self._fetch, RUNNING_FILTER, found.positions)

    async def _fetch(self, *queries: Query[Any]) -> list[Any]:
        [answers] = await self._database.pipeline([queries])
        return list(answers)

    def _queues(
        self,
        depths: list[QueueDepthRow],
        rates: list[MinuteRateRow],
        workers: list[WorkerDetailRow],
        paused: set[str],
    ) -> list[QueueSnapshot]:
        """Return every queue with queued or recently finished jobs, with a worker, or paused."""
        by_queue = {each.queue: each for each in depths}
        served = {name for each in workers for name in each.queues}
        found = []
        for queue in sorted(by_queue.keys() | served | paused | {each.queue for each in rates}):
            depth = by_queue.get(queue) or QueueDepthRow(queue, 0, True, None)
            totals, seconds = self._throughput.recent(queue)
            found.append(
                QueueSnapshot(
                    queue,
                    depth.queued,
                    depth.is_exact,
                    depth.oldest,
                    sum(queue in each.queues for each in workers if each.state == "active"),
                    totals.ended / seconds,
                    totals.failed / seconds,
                    totals.retried / seconds,
                    queue in paused,
                    totals.wait_seconds / totals.wait_count if totals.wait_count > 0 else None,
                )
            )
        return found
