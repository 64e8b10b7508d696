"""Heartbeat thread of a worker.

The thread has its own event loop and its own database connection, so neither a blocked worker loop nor an
exhausted connection pool delays it. One round trip does up to three things:

    observe   read the counters and session locks of the other workers          always
    beat      raise this worker's counter, receive cancel and drain requests    every heartbeat_interval
    orphans   check for claims that no live worker holds                        with each beat

On a direct connection, without a pooler, the heartbeat holds a session-level advisory lock. PostgreSQL
releases the lock when the connection ends, so other workers detect a dead process without waiting for
`dead_after`. The thread watches its socket: it notices a closed connection at once and reconnects. After a
failed attempt it pauses for a second at most; other workers wait a second before they trust a missing lock.

Beats, and observations that find a dead worker, reach the worker's event loop as a `BeatResult`.

The thread also measures the lag of the worker's event loop, because a blocked loop cannot measure itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rota.engine.worker.failure_detector import FailureDetector
from rota.store import claims, workers
from rota.store.connection_thread import ConnectionThread
from rota.store.database import Database, pipeline
from rota.store.query import Query
from rota.store.workers import BeatAnswer, ObservedWorker

if TYPE_CHECKING:
    from rota.store.connection import PgConnection


log = logging.getLogger("rota")

OBSERVE_SECONDS = 1.0
"""Pause between two observations while there are few other workers."""

FULL_RATE_WORKERS = 4
"""Number of other workers up to which the pause is OBSERVE_SECONDS.

With more workers the pause grows in proportion, up to the heartbeat interval. The fleet as a whole then
still makes about this many observations a second.
"""


@dataclass(frozen=True, slots=True)
class BeatResult:
    """Result of one round trip: an observation of the other workers, with or without a beat."""

    answer: BeatAnswer | None = None
    """Requests for this worker and the claims it holds; None without a beat, or after `declared_dead`."""
    sent_at: float = 0.0
    """Monotonic time just before the round trip was sent."""
    declared_dead: bool = False
    """True if the registry no longer lists this worker as active or draining."""
    dead_workers: list[ObservedWorker] = field(default_factory=list)
    """Other workers that look dead. The reaper declares them dead."""
    has_orphans: bool = False
    """True if a claim has lost its worker or exceeded its visibility timeout."""


class Heartbeat(ConnectionThread):
    """Heartbeat of one worker session.

    `count_running` returns the number of running jobs and is called in the heartbeat thread.
    `on_result` receives each `BeatResult` in the worker's event loop.
    """

    name = "heartbeat"

    max_error_delay_seconds = 1.0

    def __init__(
        self,
        database: Database,
        worker: int,
        count_running: Callable[[], int],
        on_result: Callable[[BeatResult], None],
    ) -> None:
        super().__init__(database, engine=False)
        self._worker = worker
        self._count_running = count_running
        self._on_result = on_result
        self._worker_loop = asyncio.get_running_loop()
        self._beat_interval = database.settings.heartbeat_interval
        self._next_beat_at = 0.0
        self._detector = FailureDetector(database.settings.dead_after)
        self._alone = False
        self._other_workers = 0
        self._session_lock: int | None = None
        self._lag = LoopLag(self._worker_loop)

    # Called from the worker's event loop

    def beat_now(self) -> None:
        """Beat at once: receive requests and the list of held claims without waiting for the interval."""
        self.call_in_thread(self._make_beat_due)

    def observe_now(self) -> None:
        """Observe the other workers at once, for example after a new one has registered."""
        self.call_in_thread(self._make_observation_due)

    @property
    def lag_seconds(self) -> float:
        """Lag of the worker's event loop."""
        return self._lag.seconds()

    # Runs in the heartbeat thread

    async def main(self) -> None:
        sampling = asyncio.create_task(self._lag.run())
        try:
            await super().main()
        finally:
            self._lag.stop()
            await sampling

    def _make_beat_due(self) -> None:
        self._next_beat_at = 0.0
        self.wake()

    def _make_observation_due(self) -> None:
        self._alone = False
        self.wake()

    async def tick(self) -> float:
        try:
            async with asyncio.timeout(self._database.settings.dead_after / 2):
                connection = await self.ensure_connected()
                return await self._round_trip(connection)
        except BaseException:
            self.on_connection_lost()
            await self.disconnect()
            raise

    async def _round_trip(self, connection: PgConnection) -> float:
        """Observe the other workers, beat if due, and return the seconds until the next round trip."""
        now = time.monotonic()
        beat_due = now >= self._next_beat_at
        queries: list[Query[Any]] = [workers.list_others(self._worker)]
        if beat_due:
            # Set before the round trip, so that a `beat_now` during it is not lost.
            self._next_beat_at = now + self._beat_interval
            beat = workers.beat(
                self._worker, self._session_lock, self._count_running(), self._lag.seconds()
            )
            queries = [beat, *queries, claims.orphans(0, 1)]
        with self.unwatched(connection):
            [answers] = await pipeline(connection, [queries], self._database.schema)

        observed: list[ObservedWorker] = answers[1] if beat_due else answers[0]
        dead = set(self._detector.observe(observed, time.monotonic()))
        self._other_workers = len(observed)
        self._alone = not observed
        answer = answers[0][0] if beat_due and answers[0] else None
        declared_dead = beat_due and answer is None
        result = BeatResult(
            answer=answer,
            sent_at=now,
            declared_dead=declared_dead,
            dead_workers=[each for each in observed if each.worker in dead],
            has_orphans=beat_due and bool(answers[2]),
        )
        if beat_due or result.dead_workers:
            self._deliver(result)
        if declared_dead:
            self.stop()
        return self._pause_seconds(time.monotonic())

    def _deliver(self, result: BeatResult) -> None:
        try:
            self._worker_loop.call_soon_threadsafe(self._on_result, result)
        except RuntimeError:
            self.stop()  # the worker's event loop is closed

    def _pause_seconds(self, now: float) -> float:
        until_beat = self._next_beat_at - now
        if self._detector.confirm_in_seconds is not None:
            return max(min(until_beat, self._detector.confirm_in_seconds), 0.001)
        if self._alone:
            return max(until_beat, 0.001)
        observe = min(
            OBSERVE_SECONDS * max(1.0, self._other_workers / FULL_RATE_WORKERS), self._beat_interval
        )
        return max(min(until_beat, observe * random.uniform(0.8, 1.0)), 0.001)

    # Connection

    def on_connection_lost(self) -> None:
        """Start over: observations count only while the connection is unbroken."""
        self._detector.reset()
        self._next_beat_at = 0.0
        self._session_lock = None

    async def on_connected(self, connection: PgConnection) -> None:
        """Take an advisory lock under a random free key.

        Each connection uses a new key: the server may still hold the lock of the broken connection.
        """
        while self._session_lock is None and not connection.pooled:
            key = random.randrange(2**31)
            [[[taken]]] = await pipeline(
                connection, [[workers.lock_session(key)]], self._database.schema
            )
            if taken:
                self._session_lock = key


LAG_SAMPLE_SECONDS = 0.5
LAG_WARNING_SECONDS = 1.0


class LoopLag:
    """Lag of the worker's event loop, sampled from the heartbeat thread.

    Each sample schedules a callback on the worker's loop and measures the time until it runs. A loop that
    is blocked for LAG_WARNING_SECONDS is logged once, while it is blocked, with the line that blocks it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._pending_since: float | None = None  # when the sample in flight was sent
        self._last_seconds = 0.0
        self._warned = False
        self._stopped = asyncio.Event()

    def seconds(self) -> float:
        """Return the last measured lag, or the age of the sample in flight if that is larger."""
        pending = self._pending_since
        return (
            self._last_seconds
            if pending is None
            else max(self._last_seconds, time.monotonic() - pending)
        )

    async def run(self) -> None:
        while not self._stopped.is_set():
            if self._pending_since is None:
                self._pending_since = time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._record, self._pending_since)
                except RuntimeError:
                    return  # the worker's event loop is closed
            elif not self._warned and self.seconds() >= LAG_WARNING_SECONDS:
                self._warned = True
                log.warning(
                    "the event loop has been blocked for %.1f s, in %s; no other job runs meanwhile; "
                    "move blocking code to a task that is a plain def, or to asyncio.to_thread",
                    self.seconds(),
                    self._blocking_location(),
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(LAG_SAMPLE_SECONDS):
                    await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def _record(self, sent_at: float) -> None:
        """Record the lag of one sample. Runs in the worker's event loop."""
        self._last_seconds = time.monotonic() - sent_at
        if self._warned:
            log.warning("the event loop is free again after %.1f s", self._last_seconds)
        self._warned = False
        self._pending_since = None

    def _blocking_location(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return "an unknown place"
        return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
