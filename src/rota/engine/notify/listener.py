"""Listener on one connection that dispatches notifications to subscribers.

Notifications only reduce latency: every subscriber also polls. But a lost connection must be noticed. A
half-open socket raises no error, so the connection is probed, and after a loss all subscribers are
called once because they may have missed notifications.

Through a pooler in transaction mode no notification arrives: subscribers are not called, and this is
logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.loop import Loop
from rota.store import listeners
from rota.store.database import Database

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

PROBE_SECONDS = 10.0
PROBE_TIMEOUT_SECONDS = 5.0

OnNotify = Callable[[str], None]


class Listener(Loop):
    name = "listener"

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._subscribers: dict[str, list[OnNotify]] = {}
        self._channels: set[str] = set()
        self._connection: PgConnection | None = None
        self._unavailable = False
        self._subscriptions_changed = False
        self._interrupt: asyncio.Future[None] | None = None
        self.received = 0

    def subscribe(self, channel: str, on_notify: OnNotify) -> Callable[[], None]:
        """Call `on_notify` for notifications on a channel, until the returned function is called."""
        self._subscribers.setdefault(channel, []).append(on_notify)
        self._on_subscriptions_changed()

        def unsubscribe() -> None:
            self._subscribers[channel].remove(on_notify)
            if not self._subscribers[channel]:
                del self._subscribers[channel]
            self._on_subscriptions_changed()

        return unsubscribe

    def is_listening(self, channel: str) -> bool:
        """True if LISTEN was executed for the channel on the current connection."""
        return channel in self._channels

    @property
    def is_connected(self) -> bool:
        """True if there is a connection with at least one channel."""
        return bool(self._channels)

    @property
    def unavailable(self) -> bool:
        """True if no notification can arrive: there is a pooler and no direct URL."""
        return self._unavailable

    async def tick(self) -> float | None:
        if self._unavailable or not self._subscribers:
            await self._disconnect()
            return None
        try:
            connection = await self._ensure_connected()
            if connection.pooled:
                self._give_up()
                return 0
            await self._update_channels(connection)
            # Interrupted if the subscriptions change; otherwise the connection is probed after the timeout.
            self._subscriptions_changed = False
            async with asyncio.timeout(PROBE_SECONDS):
                await self._receive(connection)
        except TimeoutError:
            pass
        except BaseException:
            await self._disconnect()
            raise
        if self._connection is not None and not self._subscriptions_changed:
            try:
                await self._connection.execute("select 1")
            except BaseException:
                await self._disconnect()
                raise
        return 0

    async def _ensure_connected(self) -> PgConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(direct=True)
            self._connection.answer_timeout = PROBE_TIMEOUT_SECONDS
            # Receives notifications that arrive during a statement.
            self._connection.add_notify_handler(lambda n: self._dispatch(n.channel, n.payload))
            self._channels.clear()
        return self._connection

    def _give_up(self) -> None:
        self._unavailable = True
        log.info(
            "connected through a pooler, so notifications are not received: workers poll every %g s; "
            "set ROTA_DIRECT_URL to bypass the pooler and be notified at once",
            self._database.settings.poll_interval,
        )

    async def _update_channels(self, connection: PgConnection) -> None:
        from psycopg import sql

        subscribed = set(self._subscribers)
        for channel in subscribed - self._channels:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            self._channels.add(channel)
            for on_notify in self._subscribers.get(channel, ()):
                on_notify(listeners.MAY_HAVE_MISSED)
        for channel in self._channels - subscribed:
            await connection.execute(sql.SQL("unlisten {}").format(sql.Identifier(channel)))
            self._channels.discard(channel)

    async def _receive(self, connection: PgConnection) -> None:
        """Dispatch notifications until interrupted.

        This bypasses psycopg's generator, which cannot be interrupted without losing data it has read.
        Notifications are dispatched in the reader callback, because each extra hop adds latency.
        """
        loop = asyncio.get_running_loop()
        interrupt = self._interrupt = loop.create_future()

        def read() -> None:
            try:
                connection.pgconn.consume_input()
                while (notice := connection.pgconn.notifies()) is not None:
                    self._dispatch(notice.relname.decode(), notice.extra.decode())
            except Exception as error:
                if not interrupt.done():
                    interrupt.set_exception(error)

        socket = connection.pgconn.socket
        loop.add_reader(socket, read)
        try:
            if not self._subscriptions_changed and not self._stopped:
                await interrupt
        finally:
            loop.remove_reader(socket)

    def _dispatch(self, channel: str, payload: str) -> None:
        self.received += 1
        for on_notify in list(self._subscribers.get(channel, ())):
            on_notify(payload)

    async def _disconnect(self) -> None:
        self._channels.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _on_subscriptions_changed(self) -> None:
        self._subscriptions_changed = True
        self._interrupt_receive()
        self.wake()

    def stop(self) -> None:
        super().stop()
        self._interrupt_receive()

    def _interrupt_receive(self) -> None:
        if self._interrupt is not None and not self._interrupt.done():
            self._interrupt.set_result(None)

    async def close(self) -> None:
        await self._disconnect()
