"""Loop that starts the runs of schedules when their ticks are due.

Any worker does it. `fire.py` describes the transaction, and why no tick is started twice.

The worker's polls also return when the next schedule is due. This loop sleeps until then, and sends no
query of its own while nothing is due. Without polls, as when the worker is full and claims no jobs, the
loop polls by itself.

A poll covers all schedules. A due schedule that this worker cannot start, because another transaction
holds its lock or the worker does not know its target, is retried with growing delays.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rota.engine.notify.notifier import Notifier
from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.scheduling.deferred import DeferredSchedules
from rota.engine.scheduling.definitions import declare
from rota.engine.scheduling.fire import FireResult, Overtaken, RunFactory, short_error
from rota.engine.telemetry.counters import Counters
from rota.engine.telemetry.event_bus import EventBus
from rota.engine.telemetry.tracing import Tracing
from rota.loop import Loop, with_jitter
from rota.model import events
from rota.store import pg_errors, schedules, ticks
from rota.store.database import Database, run
from rota.store.query import Query
from rota.store.schedules import ScheduleDefinition

log = logging.getLogger("rota")

Row = TypeVar("Row")

MIN_FALLBACK_POLL_SECONDS = 2.0
"""Minimum of the seconds without a claim poll after which this loop polls by itself."""

FIRST_RETRY_SECONDS = 0.02
MAX_CONTENDED_RETRY_SECONDS = 0.5
MAX_UNKNOWN_RETRY_SECONDS = 5.0
"""Seconds before a due schedule that could not be started is retried: the first delay, the longest if its
lock is contended, and the longest if its target is unknown to this worker.
"""

CONTENDED_POSTPONE_SECONDS = 5.0
"""Seconds for which a contended schedule is postponed."""

SWEEP_SECONDS = 5.0
IDLE_SWEEP_SECONDS = 30.0
"""Seconds between checks of the outcomes of runs, while some are open and while none is."""

FIRST_DECLARE_SECONDS = 3.0
DECLARE_SECONDS = 60.0
"""Seconds, before jitter, after which the declared schedules are written again. The first time, because the
worker was not registered while it started. Then repeatedly, because another worker may have started,
changed them, and stopped.
"""


class Scheduler(Loop):
    name = "scheduler"
    max_error_delay_seconds = 2.0

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        event_bus: EventBus,
        worker: int,
        targets: Mapping[str, RunFactory],
        tracing: Tracing | None = None,
        declared: Sequence[ScheduleDefinition] = (),
        counters: Counters | None = None,
    ) -> None:
        super().__init__()
        self._database = database
        self._notifier = notifier
        self._declared = declared
        self._event_bus = event_bus
        self._worker = worker
        self._targets = targets
        self._counters = counters or Counters()
        self._tracing = tracing
        self._process = (socket.gethostname(), os.getpid())
        self._fallback_poll_seconds = max(
            MIN_FALLBACK_POLL_SECONDS, 3 * database.settings.poll_interval
        )
        self._schedules_changed = True
        self._poll_at = 0.0
        self._sweep_at = time.monotonic() + random.uniform(0, SWEEP_SECONDS)
        self._declare_at = time.monotonic() + with_jitter(FIRST_DECLARE_SECONDS)
        self._misses = 0  # consecutive polls that found a due schedule and could not start it
        self._missed_at = 0.0
        self._overdue = False  # True if a schedule was due at a poll
        self._warned_unstartable: set[str] = set()
        # Failures in a row of a schedule for which the server may be the cause.
        self._failures_by_schedule: Counter[str] = Counter()
        self._deferred = DeferredSchedules()

    # Notifications

    def on_next_schedule(self, due_in: float | None) -> None:
        """Receive the seconds until the next schedule is due, of all schedules; None if there are none."""
        now = time.monotonic()
        if due_in is None or due_in > 0:
            self._misses = 0
            self._poll_at = now + (
                self._fallback_poll_seconds
                if due_in is None
                else min(due_in, self._fallback_poll_seconds)
            )
        else:
            self._overdue = True
            retry_at = self._missed_at + min(
                FIRST_RETRY_SECONDS * 2.0**self._misses, MAX_UNKNOWN_RETRY_SECONDS
            )
            self._poll_at = min(self._poll_at, max(now, retry_at))
        self.wake()

    def on_schedules_changed(self) -> None:
        """Poll at once, because schedules have changed."""
        self._schedules_changed = True
        self.wake()

    # Loop

    async def tick(self) -> float | None:
        if not self._targets:
            return None
        if self._schedules_changed or time.monotonic() >= self._poll_at:
            await self._poll()
        elif time.monotonic() >= self._sweep_at:
            await self._sweep()
        elif time.monotonic() >= self._declare_at:
            self._declare_at = time.monotonic() + with_jitter(DECLARE_SECONDS)
            await declare(self._database, self._declared, list(self._targets), self._worker)
        return max(min(self._poll_at, self._sweep_at, self._declare_at) - time.monotonic(), 0.001)

    async def _poll(self) -> None:
        # Set before the query: a notification during the query may be newer than its answer.
        now = time.monotonic()
        self._poll_at = now + self._fallback_poll_seconds
        if self._schedules_changed:
            self._schedules_changed = False
            self._misses = 0
        handled, due_in = False, 0.0
        if self._misses:
            due_in = await self._seconds_until_due()
        if due_in <= 0:
            handled = await self.fire()
            due_in = await self._seconds_until_due()
        if handled:
            self._misses = 0
            self._sweep_at = min(self._sweep_at, now + SWEEP_SECONDS)
        else:
            self._missed_at = now
            self._misses = min(self._misses + 1, 10)
            if due_in <= 0:
                due_in = min(FIRST_RETRY_SECONDS * 2.0**self._misses, MAX_CONTENDED_RETRY_SECONDS)
        self._poll_at = min(self._poll_at, time.monotonic() + due_in)

    async def _seconds_until_due(self) -> float:
        """Return the seconds until the next schedule is due that this worker can start."""
        deferred = self._deferred.deferred_names()
        [seconds] = await self._query(ticks.next_due(list(self._targets), deferred))
        return math.inf if seconds is None else seconds

    async def _query(self, query: Query[Row]) -> list[Row]:
        [[_, rows]] = await self._database.pipeline([[ticks.set_short_timeouts(), query]])
        return rows

    # Due schedules

    async def fire(self) -> bool:
        """Fire the due schedules. Return True if there were any."""
        try:
            fired = await self._fire()
        except Exception as error:
            if _is_database_down(error):
                raise
            # One schedule makes the batch fail, and the error does not name it.
            log.warning("schedules that are due are seen to one by one: %s", short_error(error))
            deferred = self._deferred.deferred_names()
            fired = FireResult(
                one_by_one=await self._query(ticks.due_names(list(self._targets), deferred))
            )
        for name in fired.one_by_one:
            await self._fire_one(name)
        return bool(fired.handled or fired.one_by_one)

    async def _fire_one(self, name: str) -> None:
        try:
            await self._fire(name)
            self._failures_by_schedule.pop(name, None)
        except Exception as error:
            if _is_database_down(error):
                raise
            log.error("schedule %r is deferred: %s", name, short_error(error))
            reason: str | None = short_error(error)
            seconds = scheduling_fire.POSTPONE_SECONDS
            if pg_errors.is_contended(error):
                reason, seconds = None, CONTENDED_POSTPONE_SECONDS
            elif _is_timeout(error) or pg_errors.may_pass(error):
                # A freeze of this process, or the server, may be the cause, not the schedule.
                self._failures_by_schedule[name] += 1
                failures = self._failures_by_schedule[name]
                if failures == 1:
                    reason = None
                if not _is_timeout(error):
                    seconds = min(2.0 ** min(failures - 1, 10), seconds)
                elif failures == 1:
                    seconds = CONTENDED_POSTPONE_SECONDS
            await self._database.run(ticks.postpone({name: reason}, seconds))

    async def _fire(self, name: str | None = None) -> FireResult:
        try:
            fired = await scheduling_fire.fire(
                self._database, self._targets, self._process, self._deferred, name, self._tracing
            )
        except Overtaken as error:
            log.debug("%s", error)
            return FireResult()
        self._notifier.notify(fired.queues)
        for late in fired.lateness:
            self._counters.lateness.add(late)
        if self._event_bus:
            for (schedule, tick), id in fired.started.items():
                self._event_bus.publish(
                    events.ScheduleTicked(self._worker, schedule, tick.isoformat(), id)
                )
        return fired

    # Outcomes

    async def _sweep(self) -> None:
        """Record the outcomes of runs, and warn of schedules that no worker can start."""
        now = time.monotonic()
        self._sweep_at = now + SWEEP_SECONDS
        if self._overdue:
            self._overdue = False
            await self._warn_unstartable()
        [state] = await self._query(ticks.open_ticks())
        if not state.has_open:
            self._sweep_at = now + with_jitter(IDLE_SWEEP_SECONDS)
        if not state.ended_schedules:
            return
        schema = self._database.schema
        async with self._database.transaction() as connection:
            await run(connection, ticks.set_short_timeouts(), schema)
            locked = await run(connection, ticks.lock(state.ended_schedules), schema)
            found = await run(connection, ticks.record_outcomes(locked), schema) if locked else []
        for each in found:
            if each.is_paused:
                log.warning("schedule %r is paused: it has failed too often", each.name)

    async def _warn_unstartable(self) -> None:
        """Warn of due schedules with a target that no worker knows.

        The schedules stay as they are: a worker that knows the target may be starting.
        """
        for each in await self._database.run(schedules.unstartable(list(self._targets))):
            if each.name not in self._warned_unstartable:
                self._warned_unstartable.add(each.name)
                log.warning(
                    "schedule %r is due, but no worker knows %s; it starts no runs until one does",
                    each.name,
                    each.target_label,
                )


def _is_database_down(error: Exception) -> bool:
    """True if the database failed rather than the statement, so that nothing has happened."""
    if _is_timeout(error):
        return False  # caused by one of the schedules
    return pg_errors.is_transient(error) and not pg_errors.is_contended(error)


def _is_timeout(error: Exception) -> bool:
    return pg_errors.sqlstate(error).startswith("25P0")
