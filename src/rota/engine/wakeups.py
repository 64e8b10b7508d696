"""Listens on one connection, and wakes whoever it concerns.

The connection is a convenience: everybody who can be woken also looks by himself. What must hold is
that deafness is noticed: a half-open socket gives no error, so the connection is probed, and after a
loss everybody is woken once, for what was missed.

Through a pooler in transaction mode there is nothing to hear: nobody is woken, and it is said once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.loop import Loop
from rota.store import waiters
from rota.store.database import Database

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")

PROBE_EVERY = 10.0
PROBE_WITHIN = 5.0

Hear = Callable[[str], None]


class Wakeups(Loop):
    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._subscribers: dict[str, list[Hear]] = {}
        self._listening: set[str] = set()
        self._connection: Session | None = None
        self._deaf = False
        self._changed = False
        self._interrupt: asyncio.Future[None] | None = None
        self.heard = 0

    def subscribe(self, channel: str, hear: Hear) -> Callable[[], None]:
        """Hear what is said on a channel, until the answer is called."""
        self._subscribers.setdefault(channel, []).append(hear)
        self._change()

        def unsubscribe() -> None:
            self._subscribers[channel].remove(hear)
            if not self._subscribers[channel]:
                del self._subscribers[channel]
            self._change()

        return unsubscribe

    def hears(self, channel: str) -> bool:
        """Whether the server has been told that we listen."""
        return channel in self._listening

    @property
    def listens(self) -> bool:
        """Whether there is a connection on which something may be heard."""
        return bool(self._listening)

    @property
    def deaf(self) -> bool:
        """Whether nothing can be heard here: a pooler is in between, and there is no way past it."""
        return self._deaf

    async def tick(self) -> float | None:
        if self._deaf or not self._subscribers:
            await self._disconnect()
            return None
        try:
            connection = await self._connected()
            if connection.pooled:
                self._give_up()
                return 0
            await self._listen(connection)
            # Interrupted when the subscriptions change, else probed.
            self._changed = False
            async with asyncio.timeout(PROBE_EVERY):
                await self._hear(connection)
        except TimeoutError:
            pass
        except BaseException:
            await self._disconnect()
            raise
        if self._connection is not None and not self._changed:
            try:
                await self._connection.execute("select 1")
            except BaseException:
                await self._disconnect()
                raise
        return 0

    async def _connected(self) -> Session:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(direct=True)
            self._connection.deadline = PROBE_WITHIN
            # What arrives while a statement of ours runs is handed over here.
            self._connection.add_notify_handler(lambda n: self._pass_on(n.channel, n.payload))
            self._listening.clear()
        return self._connection

    def _give_up(self) -> None:
        self._deaf = True
        log.info(
            "a pooler is in between, so nothing can be heard: workers look for work every %g s; "
            "set ROTA_DIRECT_URL to a way past it to be told at once",
            self._database.settings.poll,
        )

    async def _listen(self, connection: Session) -> None:
        from psycopg import sql

        wanted = set(self._subscribers)
        for channel in wanted - self._listening:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            self._listening.add(channel)
            for hear in self._subscribers.get(channel, ()):
                hear(waiters.MISSED)
        for channel in self._listening - wanted:
            await connection.execute(sql.SQL("unlisten {}").format(sql.Identifier(channel)))
            self._listening.discard(channel)

    async def _hear(self, connection: Session) -> None:
        """Hear until interrupted. Below psycopg's own generator, which cannot be interrupted without
        losing what it has read, and in the reader itself: each detour would be felt as latency."""
        loop = asyncio.get_running_loop()
        interrupt = self._interrupt = loop.create_future()

        def read() -> None:
            try:
                connection.pgconn.consume_input()
                while (notice := connection.pgconn.notifies()) is not None:
                    self._pass_on(notice.relname.decode(), notice.extra.decode())
            except Exception as error:
                if not interrupt.done():
                    interrupt.set_exception(error)

        socket = connection.pgconn.socket
        loop.add_reader(socket, read)
        try:
            if not self._changed and not self._stopped:
                await interrupt
        finally:
            loop.remove_reader(socket)

    def _pass_on(self, channel: str, word: str) -> None:
        self.heard += 1
        for hear in list(self._subscribers.get(channel, ())):
            hear(word)

    async def _disconnect(self) -> None:
        self._listening.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _change(self) -> None:
        self._changed = True
        self._cut_short()
        self.wake()

    def stop(self) -> None:
        super().stop()
        self._cut_short()

    def _cut_short(self) -> None:
        if self._interrupt is not None and not self._interrupt.done():
            self._interrupt.set_result(None)

    async def close(self) -> None:
        await self._disconnect()
