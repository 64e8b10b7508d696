"""A worker's heart: says that it lives, hears what is asked of it, and has an eye on the others.

It beats in a thread of its own, on a connection of its own: neither a blocked event loop nor a pool with
nothing left stops it. While it is connected directly, that connection holds an advisory lock, which the
server lets go of the moment the process is gone. One that broke is noticed at once, not at the next beat,
and made anew within a second, which is what the others wait before they believe it.

What it hears goes to the worker's loop: wishes to cancel, a wish to drain, that the worker was declared
dead, and which of the others seem to be.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rota.engine.lag import Lag
from rota.loop import Loop
from rota.model.watch import Watch
from rota.store import claims, workers
from rota.store.database import Database, exchange
from rota.store.query import Query
from rota.store.workers import Seen, Told

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger("rota")

LOOK = 1.0
"""Seconds between looks at the others, while they are few."""

FEW = 4
"""So many look once a second; beyond that each looks less often, and together they look no less."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What came of one beat or look."""

    told: Told | None = None
    sent: float = 0.0
    died: bool = False
    """This worker was declared dead."""
    dead: list[Seen] = field(default_factory=list)
    """Others that seem to be."""
    orphans: bool = False
    """There are claims nobody looks after."""


class Heart(Loop):
    longest_rest_after_error = 1.0

    def __init__(
        self,
        database: Database,
        worker: int,
        running: Callable[[], int],
        hear: Callable[[Pulse], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._running = running
        self._hear = hear
        self._ours = asyncio.get_running_loop()
        self._beat_every = database.settings.beat
        self._beat_at = 0.0
        self._watch = Watch(database.settings.dead_after)
        self._alone = False
        self._many = 0
        self._seat: int | None = None
        self._connection: AsyncConnection[Any] | None = None
        self._noticed = False
        self._lag = Lag(self._ours)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._live, name="rota heart", daemon=True)
        self._first = threading.Event()

    # From the worker's loop

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """There is news about jobs of ours: beat at once, and hear it."""
        self._call(self._beat_now)

    def look(self) -> None:
        """There is news about the others: look at once."""
        self._call(self._look_now)

    @property
    def lag(self) -> float:
        """How many seconds the worker's event loop is late."""
        return self._lag.now()

    def end(self) -> None:
        """Beat no more."""
        self._call(self.stop)

    async def ended(self) -> None:
        await asyncio.to_thread(self._thread.join, 1.0)

    def _call(self, what: Callable[[], None]) -> None:
        self._first.wait(5.0)
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            return  # it has ended

    # In the thread

    def _live(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._first.set()
        lag = asyncio.create_task(self._lag.run())
        try:
            await self.run()
        finally:
            self._lag.stop()
            await lag
            await self._disconnect()

    def _beat_now(self) -> None:
        self._beat_at = 0.0
        self.wake()

    def _look_now(self) -> None:
        self._alone = False
        self.wake()

    async def tick(self) -> float:
        try:
            async with asyncio.timeout(self._database.settings.dead_after / 2):
                connection = await self._connected()
                return await self._trade(connection)
        except BaseException:
            # What was seen on that connection may be no more.
            self._watch.forget()
            self._beat_at = 0.0
            await self._disconnect()
            raise

    async def _trade(self, connection: AsyncConnection[Any]) -> float:
        now = time.monotonic()
        beating = now >= self._beat_at
        queries: list[Query[Any]] = [workers.look(self._worker)]
        if beating:
            beat = workers.beat(self._worker, self._seat, self._running(), self._lag.now())
            queries = [beat, *queries, claims.orphans(0, 1)]
        self._stop_listening(connection)
        [answers] = await exchange(connection, [queries], self._database.schema)
        self._listen(connection)

        seen: list[Seen] = answers[1] if beating else answers[0]
        dead = set(self._watch.see(seen, time.monotonic()))
        self._many = len(seen)
        self._alone = not seen
        told = answers[0][0] if beating and answers[0] else None
        died = beating and told is None
        pulse = Pulse(
            told=told,
            sent=now,
            died=died,
            dead=[each for each in seen if each.worker in dead],
            orphans=beating and bool(answers[2]),
        )
        if beating or pulse.dead:
            self._say(pulse)
        if died:
            self.stop()
        if beating:
            self._beat_at = now + self._beat_every
        return self._rest(time.monotonic())

    def _say(self, pulse: Pulse) -> None:
        try:
            self._ours.call_soon_threadsafe(self._hear, pulse)
        except RuntimeError:
            self.stop()  # the worker's loop is gone

    def _rest(self, now: float) -> float:
        beat = self._beat_at - now
        if self._watch.look_again_in is not None:
            return max(min(beat, self._watch.look_again_in), 0.001)
        if self._alone:
            return max(beat, 0.001)
        look = min(LOOK * max(1.0, self._many / FEW), self._beat_every)
        return max(min(beat, look * random.uniform(0.8, 1.0)), 0.001)

    # The connection

    async def _connected(self) -> AsyncConnection[Any]:
        if self._noticed:
            # There is something to read while we asked nothing: the server has hung up.
            self._noticed = False
            self._watch.forget()
            await self._disconnect()
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(direct=True)
            self._beat_at = 0.0
            self._seat = None
            if not self._connection.pooled:
                await self._sit(self._connection)
        return self._connection

    async def _sit(self, connection: AsyncConnection[Any]) -> None:
        """On a seat nobody has, nor a connection of ours that the server still believes in."""
        while self._seat is None:
            seat = random.randrange(2**31)
            [[[taken]]] = await exchange(connection, [[workers.sit(seat)]], self._database.schema)
            if taken:
                self._seat = seat

    def _listen(self, connection: AsyncConnection[Any]) -> None:
        def notice() -> None:
            self._noticed = True
            self._stop_listening(connection)
            self.wake()

        asyncio.get_running_loop().add_reader(connection.pgconn.socket, notice)

    def _stop_listening(self, connection: AsyncConnection[Any]) -> None:
        asyncio.get_running_loop().remove_reader(connection.pgconn.socket)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            self._stop_listening(connection)
            await connection.close()
