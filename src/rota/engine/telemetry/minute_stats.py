"""Loop that writes a worker's counters per minute: for charts, and for scaling decisions.

The counts of the current minute are written every few seconds if they have changed; an idle worker
writes nothing. A lost answer is harmless: the same totals are written again and count once. A worker
that dies loses a few seconds of its counts and nothing else.

At the beginning of every minute, one worker of the fleet records the depth of the queues. At intervals,
old minutes are merged, and minutes beyond the retention are deleted.
"""

from __future__ import annotations

import logging
import time

from rota.engine.db_clock import DatabaseClock
from rota.engine.telemetry.counters import COUNTS, Counters, QueueTask, TaskCounters
from rota.loop import Loop, with_jitter
from rota.store import metrics as store
from rota.store.database import Database

log = logging.getLogger("rota")

WRITE_SECONDS = 5.0
COMPACT_SECONDS = 600.0
"""Seconds between writes, and between compactions before jitter."""

MAX_COMPACT_STATEMENTS = 20
"""Statements of one compaction at most; the rest is left for the next."""

REMEMBERED_MINUTES = 30
"""Minutes for which the written totals are kept in memory."""

Sums = dict[str, float]


class MinuteStats(Loop):
    name = "minute statistics"
    max_error_delay_seconds = 30.0

    def __init__(
        self, database: Database, worker: int, clock: DatabaseClock, counters: Counters
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._clock = clock
        self._counters = counters
        self._last_sums: dict[QueueTask, Sums] = {}  # as of the last collection
        self._sums_by_minute: dict[int, dict[QueueTask, Sums]] = {}  # totals of each minute
        self._unwritten: set[tuple[int, QueueTask]] = set()
        self._sampled_minute: int | None = None
        self._compact_at = time.monotonic() + with_jitter(COMPACT_SECONDS, 0.1, 1.0)

    async def tick(self) -> float:
        minute, remaining = self._current_minute()
        self._collect(minute)
        if self._unwritten:
            await self._write()
        if self._sampled_minute is None:
            self._sampled_minute = minute  # it began before this worker
        if minute != self._sampled_minute:
            await self._database.run(store.sample_queues(self._worker))
            self._sampled_minute = minute
        if time.monotonic() >= self._compact_at:
            self._compact_at = time.monotonic() + with_jitter(COMPACT_SECONDS)
            await self._compact()
        return min(WRITE_SECONDS, remaining)

    async def close(self) -> None:
        """Write the remaining counts, without a retry if that fails."""
        self._collect(self._current_minute()[0])
        if self._unwritten:
            try:
                await self._write()
            except Exception as error:
                log.debug("the last statistics could not be written: %s", error)

    def _current_minute(self) -> tuple[int, float]:
        """Return the current minute, and the seconds left of it."""
        minute, elapsed = divmod(self._clock.now().timestamp(), 60.0)
        return int(minute), max(60.0 - elapsed, 0.01)

    def _collect(self, minute: int) -> None:
        """Add the counts since the last collection to this minute."""
        for queue_task, counters in list(self._counters.by_task.items()):
            now, previous = _sums(counters), self._last_sums.get(queue_task)
            if now == previous:
                continue
            sums = self._sums_by_minute.setdefault(minute, {}).setdefault(queue_task, {})
            for name, value in now.items():
                sums[name] = sums.get(name, 0) + value - (previous[name] if previous else 0)
            for name, max_value in (
                ("max_seconds", counters.durations.take_max_value()),
                ("max_wait_seconds", counters.wait_times.take_max_value()),
            ):
                sums[name] = max(sums.get(name, 0.0), max_value)
            self._last_sums[queue_task] = now
            self._unwritten.add((minute, queue_task))

    async def _write(self) -> None:
        writing = sorted(self._unwritten)
        totals = [
            store.MinuteTotals(minute, *queue_task, **self._sums_by_minute[minute][queue_task])  # type: ignore[arg-type]
            for minute, queue_task in writing
        ]
        await self._database.run(store.write_minutes(self._worker, totals))
        self._unwritten.difference_update(writing)
        for minute in sorted(self._sums_by_minute)[:-REMEMBERED_MINUTES]:
            if not any(each == minute for each, _ in self._unwritten):
                del self._sums_by_minute[minute]

    async def _compact(self) -> None:
        for query in (store.compact(), store.delete_old()):
            for _ in range(MAX_COMPACT_STATEMENTS):
                [count] = await self._database.run(query)
                if count < store.BATCH_ROWS:
                    break


def _sums(counters: TaskCounters) -> Sums:
    sums: Sums = {name: getattr(counters, name) for name in COUNTS}
    sums["attempts"], sums["seconds"] = counters.durations.count, counters.durations.total
    sums["wait_count"], sums["wait_seconds"] = counters.wait_times.count, counters.wait_times.total
    return sums
