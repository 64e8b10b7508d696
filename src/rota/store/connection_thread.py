"""Loop in a thread with its own direct connection.

Neither a blocked event loop nor an exhausted pool delays it. Between two statements the thread watches the
socket of its connection. So it notices at once that the server has closed the connection, and has released
the session locks that the session held.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.loop import Loop
from rota.store.database import Database

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")


class ConnectionThread(Loop):
    """Thread that starts with the first `start` or `call_in_thread`, and ends when the loop is stopped.

    `tick`, `on_connected` and `on_connection_lost` run in the thread. With `engine`, the connection has the
    engine's settings.
    """

    def __init__(self, database: Database, *, engine: bool) -> None:
        super().__init__()
        self._database = database
        self._engine = engine
        self._connection: PgConnection | None = None
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    # Thread-safe

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the thread unless it runs. Return its event loop."""
        with self._start_lock:
            if self._thread_loop is None:
                if self._closed:
                    raise RuntimeError("this thread has been stopped")
                self._thread_loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._thread_main,
                    args=(self._thread_loop,),
                    name=f"rota {self.name}",
                    daemon=True,
                )
                self._thread.start()
            return self._thread_loop

    def call_in_thread(self, callback: Callable[[], None]) -> None:
        try:
            self.start().call_soon_threadsafe(callback)
        except RuntimeError:
            return  # the thread has ended

    def request_stop(self) -> None:
        """Stop the loop. Return without waiting for the thread."""
        with self._start_lock:
            self._closed = True
            is_started = self._thread is not None
        if is_started:
            self.call_in_thread(self.stop)

    async def join(self, timeout: float) -> None:
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, timeout)

    # Runs in the thread

    def _thread_main(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self.main())

    async def main(self) -> None:
        try:
            await self.run()
        finally:
            await self.disconnect()

    async def on_connected(self, connection: PgConnection) -> None:
        """React to a new connection."""

    def on_connection_lost(self) -> None:
        """React to the loss of the connection, and of everything the server bound to it."""

    async def ensure_connected(self) -> PgConnection:
        if self._connection is not None and self._connection.closed:
            await self.disconnect()
        if self._connection is None:
            self._connection = await self._database.connect(engine=self._engine, direct=True)
            await self.on_connected(self._connection)
        return self._connection

    async def disconnect(self) -> None:
        connection = self._connection
        if connection is None:
            return
        self._drop_connection()
        if not connection.closed:
            self._unwatch_socket(connection)
            await connection.close()

    def _drop_connection(self) -> None:
        """Drop the connection before it is closed, so that no code trusts a lock that the session held."""
        self._connection = None
        self.on_connection_lost()

    @contextmanager
    def unwatched(self, connection: PgConnection) -> Iterator[None]:
        """Do not watch the socket in the block, whose statements read from it.

        After an error it stays unwatched: the caller disconnects.
        """
        self._unwatch_socket(connection)
        yield
        if not connection.closed:
            asyncio.get_running_loop().add_reader(
                connection.pgconn.socket, self._on_readable, connection
            )

    def _unwatch_socket(self, connection: PgConnection) -> None:
        if not connection.closed:
            asyncio.get_running_loop().remove_reader(connection.pgconn.socket)

    def _on_readable(self, connection: PgConnection) -> None:
        """Drop the connection if the server has closed it: no statement is in flight."""
        try:
            connection.pgconn.consume_input()
            return  # only a message: a changed setting, or a notice of the shutdown
        except Exception as error:
            log.debug("the server has hung up: %s", error)
        self._unwatch_socket(connection)
        if connection is self._connection:
            self._drop_connection()
            self._closing = asyncio.create_task(connection.close())
            self.wake()
