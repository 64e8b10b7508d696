"""A worker's heartbeat: proves that it lives, receives requests, and watches the other workers.

It runs in a thread with its own connection, so neither a blocked event loop nor an exhausted pool stops
it. A direct connection also holds an advisory lock, which the server releases the moment the process is
gone. A broken connection is noticed at once and replaced within a second; other workers wait that long
before they believe that this one is dead.

Received requests go to the worker's loop: cancel, drain, that this worker was declared dead, and which
others seem to be.

The same thread measures how late the event loop is, because a blocked loop cannot measure itself. It
logs a late loop while it is blocked, with the place in the code.
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
from rota.loop import Loop
from rota.store import claims, workers
from rota.store.database import Database, pipeline
from rota.store.query import Query
from rota.store.workers import BeatAnswer, ObservedWorker

if TYPE_CHECKING:
    from psycopg import AsyncConnection


log = logging.getLogger("rota")

OBSERVE_SECONDS = 1.0
"""Seconds between looks at the others, while they are few."""

FULL_RATE_WORKERS = 4
"""So many look once a second; beyond that each looks less often, and together they look no less."""


@dataclass(frozen=True, slots=True)
class BeatResult:
    """What came of one beat or look."""

    answer: BeatAnswer | None = None
    sent_at: float = 0.0
    declared_dead: bool = False
    """This worker was declared dead."""
    dead_workers: list[ObservedWorker] = field(default_factory=list)
    """Others that seem to be."""
    has_orphans: bool = False
    """There are claims nobody looks after."""


class Heartbeat(Loop):
    max_error_delay_seconds = 1.0

    def __init__(
        self,
        database: Database,
        worker: int,
        count_running: Callable[[], int],
        on_result: Callable[[BeatResult], None],
    ) -> None:
        super().__init__()
        self._database = database
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
        self._connection: AsyncConnection[Any] | None = None
        self._connection_closed = False
        self._lag = LoopLag(self._worker_loop)
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._thread_main, name="rota heart", daemon=True)
        self._thread_started = threading.Event()

    # From the worker's loop

    def start(self) -> None:
        self._thread.start()

    def beat_now(self) -> None:
        """There is news about jobs of ours: beat at once, and hear it."""
        self._call_in_thread(self._make_beat_due)

    def observe_now(self) -> None:
        """There is news about the others: look at once."""
        self._call_in_thread(self._make_observation_due)

    @property
    def lag_seconds(self) -> float:
        """How many seconds the worker's event loop is late."""
        return self._lag.seconds()

    def request_stop(self) -> None:
        """Beat no more."""
        self._call_in_thread(self.stop)

    async def wait_stopped(self) -> None:
        await asyncio.to_thread(self._thread.join, 1.0)

    def _call_in_thread(self, callback: Callable[[], None]) -> None:
        self._thread_started.wait(5.0)
        try:
            assert self._thread_loop is not None
            self._thread_loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return  # it has ended

    # In the thread

    def _thread_main(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._thread_loop = asyncio.get_running_loop()
        self._thread_started.set()
        sampling = asyncio.create_task(self._lag.run())
        try:
            await self.run()
        finally:
            self._lag.stop()
            await sampling
            await self._disconnect()

    def _make_beat_due(self) -> None:
        self._next_beat_at = 0.0
        self.wake()

    def _make_observation_due(self) -> None:
        self._alone = False
        self.wake()

    async def tick(self) -> float:
        try:
            async with asyncio.timeout(self._database.settings.dead_after / 2):
                connection = await self._ensure_connected()
                return await self._round_trip(connection)
        except BaseException:
            # What was seen on that connection may be no more.
            self._detector.reset()
            self._next_beat_at = 0.0
            await self._disconnect()
            raise

    async def _round_trip(self, connection: AsyncConnection[Any]) -> float:
        now = time.monotonic()
        beat_due = now >= self._next_beat_at
        queries: list[Query[Any]] = [workers.list_others(self._worker)]
        if beat_due:
            beat = workers.beat(
                self._worker, self._session_lock, self._count_running(), self._lag.seconds()
            )
            queries = [beat, *queries, claims.orphans(0, 1)]
        self._unwatch_socket(connection)
        [answers] = await pipeline(connection, [queries], self._database.schema)
        self._watch_socket(connection)

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
        if beat_due:
            self._next_beat_at = now + self._beat_interval
        return self._pause_seconds(time.monotonic())

    def _deliver(self, result: BeatResult) -> None:
        try:
            self._worker_loop.call_soon_threadsafe(self._on_result, result)
        except RuntimeError:
            self.stop()  # the worker's loop is gone

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

    # The connection

    async def _ensure_connected(self) -> AsyncConnection[Any]:
        if self._connection_closed:
            # There is something to read while we asked nothing: the server has hung up.
            self._connection_closed = False
            self._detector.reset()
            await self._disconnect()
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(direct=True)
            self._next_beat_at = 0.0
            self._session_lock = None
            if not self._connection.pooled:
                await self._take_session_lock(self._connection)
        return self._connection

    async def _take_session_lock(self, connection: AsyncConnection[Any]) -> None:
        """On a seat nobody has, nor a connection of ours that the server still believes in."""
        while self._session_lock is None:
            key = random.randrange(2**31)
            [[[taken]]] = await pipeline(
                connection, [[workers.lock_session(key)]], self._database.schema
            )
            if taken:
                self._session_lock = key

    def _watch_socket(self, connection: AsyncConnection[Any]) -> None:
        def on_readable() -> None:
            self._connection_closed = True
            self._unwatch_socket(connection)
            self.wake()

        asyncio.get_running_loop().add_reader(connection.pgconn.socket, on_readable)

    def _unwatch_socket(self, connection: AsyncConnection[Any]) -> None:
        asyncio.get_running_loop().remove_reader(connection.pgconn.socket)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            self._unwatch_socket(connection)
            await connection.close()


LAG_SAMPLE_SECONDS = 0.5
LAG_WARNING_SECONDS = 1.0


class LoopLag:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._pending_since: float | None = (
            None  # when the loop was asked to answer and has not yet
        )
        self._last_seconds = 0.0
        self._warned = False
        self._stopped = asyncio.Event()

    def seconds(self) -> float:
        """Seconds, as far as is known."""
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
                    return  # the loop is gone
            elif not self._warned and self.seconds() >= LAG_WARNING_SECONDS:
                self._warned = True
                log.warning(
                    "the event loop has been blocked for %.1f s, in %s: nothing else runs meanwhile; "
                    "do what blocks in a task that is a plain def, or in asyncio.to_thread",
                    self.seconds(),
                    self._blocking_location(),
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(LAG_SAMPLE_SECONDS):
                    await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def _record(self, sent_at: float) -> None:
        """In the worker's loop."""
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
