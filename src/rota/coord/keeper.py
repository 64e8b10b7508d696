"""Keeps what this program holds: renews it in time, and says so at once when it is lost.

It has a thread and a connection of its own, so that neither a blocked event loop nor a pool with nothing
left costs anybody a lock. What it keeps comes in parts (renewals of locks, campaigns of leaders, …) which
take turns on that connection. It is made when the first thing is due and closed when there has been nothing
for a while: a lock that is held for a moment never meets it.

Loss is told by the clock, not by an answer: while the connection hangs, what runs out is lost on time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from rota.coord import trust
from rota.loop import Loop
from rota.store import failures
from rota.store.database import Database

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")

T = TypeVar("T")

LINGER = 20.0
"""Seconds that an unused connection is kept."""

SHARE_OF_ANSWER = 0.9
"""Of the time that a turn may take, what one answer may."""

LONGEST_REST = 0.5
SHARE_OF_REST = 0.4
"""After a turn that failed: seconds, and of the time that it may have taken."""


class Part(Protocol):
    """Times are those of `trust.now()`; `math.inf` is never. All is called in the keeper's thread."""

    @property
    def patience(self) -> float:
        """Seconds that one turn may take."""
        ...

    def due(self) -> float:
        """When it wants its next turn."""
        ...

    async def turn(self, connection: Session) -> None: ...

    def ends(self) -> float:
        """When the first of what it keeps is lost, unless it is renewed before."""
        ...

    def expire(self) -> None:
        """Let go of what is no longer to be relied on."""
        ...

    def cut(self) -> None:
        """The connection went, and whatever the server bound to it."""
        ...


class Keeper(Loop):
    """Belongs to the event loop it is made in, and ends with it: whose loop is gone gives nothing back."""

    def __init__(self, database: Database, name: str) -> None:
        super().__init__()
        self._name = name
        self._database = database
        self._owner = asyncio.get_running_loop()
        self._parts: list[Part] = []
        self._connection: Session | None = None
        self._used = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._alarm: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._closed = False

    # From any thread

    def add(self, part: Part) -> None:
        self._parts = [*self._parts, part]

    def remove(self, part: Part) -> None:
        """What it has kept is its owner's business."""
        self._parts = [each for each in self._parts if each is not part]

    def nudge(self) -> None:
        """Something may be due sooner than it was."""
        self._call(self._look_again)

    async def do(self, what: Callable[[], Awaitable[T]]) -> T:
        """Run something in the keeper's thread, from another loop."""
        loop = self._running()

        async def once() -> T:
            return await what()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(once(), loop))

    async def close(self) -> None:
        with self._starting:
            self._closed = True
            thread = self._thread
        if thread is not None:
            self._call(self.stop)
            await asyncio.to_thread(thread.join, 2.0)

    def _call(self, what: Callable[[], None]) -> None:
        try:
            self._running().call_soon_threadsafe(what)
        except RuntimeError:
            return  # it has ended

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                if self._closed:
                    raise RuntimeError("this app has been closed")
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._live, args=(self._loop,), name=f"rota {self._name}", daemon=True
                )
                self._thread.start()
            return self._loop

    # In the thread

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._keep())

    async def _keep(self) -> None:
        try:
            await self.run()
        finally:
            await self._disconnect()

    async def tick(self) -> float | None:
        if self._owner.is_closed():
            self.stop()
            return None
        now = trust.now()
        due = [part for part in self._parts if part.due() <= now]
        try:
            if due:
                await self._turns(due)
        finally:
            # Also of what was taken in a turn that came to nothing in the end.
            self._set_alarm()
        due_at = soonest(part.due() for part in self._parts)
        if self._connection is not None and math.isinf(due_at):
            rest = self._used + LINGER - time.monotonic()
            if rest <= 0:
                await self._disconnect()
                return None
            return rest
        return None if math.isinf(due_at) else max(due_at - trust.now(), 0.001)

    async def _turns(self, parts: list[Part]) -> None:
        # Also of those whose turn it is not: it may be before this one ends.
        patience = min(part.patience for part in self._parts)
        self.longest_rest_after_error = min(LONGEST_REST, patience * SHARE_OF_REST)
        try:
            async with asyncio.timeout(patience):
                connection = await self._connected()
            # Hung up on, where an answer is overdue: whoever says politely that he no longer waits, and
            # waits for the answer to that, has lost half a second more.
            connection.deadline = patience * SHARE_OF_ANSWER
            for part in parts:
                async with asyncio.timeout(patience):
                    await self._turn(part, connection)
            self._used = time.monotonic()
        except BaseException:
            await self._disconnect()
            raise

    async def _turn(self, part: Part, connection: Session) -> None:
        self._stop_watching(connection)
        try:
            await part.turn(connection)
        except Exception as error:
            # Somebody is in the way: it comes again, and the connection is as good as before.
            if not failures.is_contended(error):
                raise
            log.debug("%s has to wait: %s", type(part).__name__.lower(), error)
        self._watch(connection)

    # What is lost by the clock

    def _look_again(self) -> None:
        self._set_alarm()
        self.wake()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        ends = soonest(part.ends() for part in self._parts)
        if not math.isinf(ends):
            rest = max(ends - trust.now(), 0.0)
            self._alarm = asyncio.get_running_loop().call_later(rest, self._expire)

    def _expire(self) -> None:
        for part in self._parts:
            part.expire()
        self._set_alarm()

    # The connection

    async def _connected(self) -> Session:
        if self._connection is not None and self._connection.closed:
            await self._disconnect()
        if self._connection is None:
            # As an engine's: many rows are named at once, and the plan for that is the one over the index.
            self._connection = await self._database.connect(engine=True, direct=True)
        return self._connection

    def _watch(self, connection: Session) -> None:
        """Something to read while we asked nothing: the server has hung up, most likely, and with it went
        what it held for us. That is known now, not when the next turn is due."""

        def notice() -> None:
            try:
                connection.pgconn.consume_input()
                return  # it only says something: that a setting has changed, or that it is about to hang up
            except Exception as error:
                log.debug("the server has hung up: %s", error)
            self._stop_watching(connection)
            if connection is self._connection:
                self._let_go()
                self._leaving = asyncio.create_task(connection.close())
                self.wake()

        if not connection.closed:
            asyncio.get_running_loop().add_reader(connection.pgconn.socket, notice)

    def _stop_watching(self, connection: Session) -> None:
        if not connection.closed:
            asyncio.get_running_loop().remove_reader(connection.pgconn.socket)

    async def _disconnect(self) -> None:
        connection = self._connection
        if connection is None:
            return
        self._let_go()
        if not connection.closed:
            self._stop_watching(connection)
            await connection.close()

    def _let_go(self) -> None:
        """At once, and before the server hears of it: nobody relies any more on what went with it."""
        self._connection = None
        for part in self._parts:
            part.cut()


def soonest(times: Iterable[float]) -> float:
    """The first of some times; never, if there is none."""
    return min(times, default=math.inf)
