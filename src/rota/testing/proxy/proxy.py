"""Proxy in front of PostgreSQL that breaks connections in the ways that networks do.

    with Proxy(dsn) as proxy:
        app = Rota(proxy.dsn)
        proxy.cut("answered")       # the next commit succeeds, but its answer is lost
        …
        [cut] = proxy.cuts          # the statements, and whether the server had committed

The proxy parses messages, so that it can cut a connection between a commit and its answer. A commit is a
COMMIT of a transaction that wrote, or the end of a turn (Query, or the Sync of a pipeline) that wrote
outside of one.

It runs in its own thread. Each method returns when its effect has taken place.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, Self, TypeVar

from rota.testing.proxy import protocol
from rota.testing.proxy.connection import CutConnection, CutPoint, FaultOrder, ProxyConnection

T = TypeVar("T")


class Proxy:
    """A local port in front of one server."""

    def __init__(self, dsn: str) -> None:
        from psycopg.conninfo import conninfo_to_dict

        self._info = conninfo_to_dict(dsn)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rota proxy", daemon=True)
        self._started = threading.Event()
        self._connections: set[ProxyConnection] = set()
        self._orders: list[FaultOrder] = []
        self._unanswered: set[str | None] = set()  # whose new connections hang
        self._refused: set[str | None] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._cut_recorded = threading.Condition()
        self.cuts: list[CutConnection] = []
        self.delay = 0.0
        """Seconds added to every message, each way."""

    # -- lifecycle

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._call_in_thread(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def dsn(self) -> str:
        """DSN of the proxy, for clients."""
        return self.dsn_for(None)

    def dsn_for(self, application: str | None) -> str:
        """Return the DSN with an application name, so that faults can be limited to this client."""
        from psycopg.conninfo import make_conninfo

        host: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "sslmode": "disable"}
        if application:
            host["application_name"] = application
        given = {name: value for name, value in self._info.items() if name != "hostaddr"}
        return make_conninfo(**{**given, **host})

    # -- faults; `application` limits them to connections with this application name

    def cut(
        self,
        point: CutPoint,
        *,
        matching: str | None = None,
        application: str | None = None,
        hold_seconds: float = 1.0,
    ) -> None:
        """Cut the connection of the next commit whose statements match, once."""
        pattern = re.compile(matching.encode()) if matching else None
        self._call_in_thread(
            lambda: self._orders.append(FaultOrder(point, pattern, application, hold_seconds))
        )

    def wait_for_cuts(self, count: int = 1, *, timeout: float = 30.0) -> list[CutConnection]:
        """Wait until `count` cuts were made and the server has answered each, and return all cuts."""
        with self._cut_recorded:
            if not self._cut_recorded.wait_for(lambda: len(self.cuts) >= count, timeout):
                raise TimeoutError(
                    f"{len(self.cuts)} of {count} cuts were met within {timeout:g} s"
                )
            return list(self.cuts)

    def cancel_cuts(self) -> int:
        """Cancel the cuts that were not made yet and return their number."""

        def clear_orders() -> int:
            count = len(self._orders)
            self._orders.clear()
            return count

        return self._call_in_thread(clear_orders)

    def reset(self, *, application: str | None = None) -> int:
        """Break connections with a TCP reset and return their number."""
        return self._for_each(application, ProxyConnection.reset)

    def drop(self, *, application: str | None = None) -> int:
        """Drop all messages without closing connections, and return their number.

        New connections are accepted and get no answer until `heal`.
        """
        self._call_in_thread(lambda: self._unanswered.add(application))
        return self._for_each(application, ProxyConnection.go_silent)

    def half_open(
        self, ended_side: Literal["client", "server"], *, application: str | None = None
    ) -> int:
        """Close connections at `ended_side` only, and return their number. The other side stays open."""
        return self._for_each(
            application,
            ProxyConnection.reset_client
            if ended_side == "client"
            else ProxyConnection.disconnect_server,
        )

    def hold(self) -> None:
        """Hold all messages; they are forwarded after `heal`."""
        self._call_in_thread(self._open.clear)

    def refuse(self, *, application: str | None = None) -> None:
        """Break new connections after their startup message, until `heal`."""
        self._call_in_thread(lambda: self._refused.add(application))

    def heal(self) -> None:
        """Accept new connections and forward held messages. Dropped connections stay dead."""

        def heal() -> None:
            self._unanswered.clear()
            self._refused.clear()
            self._open.set()

        self._call_in_thread(heal)

    # -- called in the proxy's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", 0)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _call_in_thread(self, action: Callable[[], T]) -> T:
        async def call() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    def _for_each(self, application: str | None, action: Callable[[ProxyConnection], None]) -> int:
        def call_each() -> int:
            connections = [
                connection
                for connection in self._connections
                if connection.is_alive and connection.is_for(application)
            ]
            for connection in connections:
                action(connection)
            return len(connections)

        return self._call_in_thread(call_each)

    def _close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.reset()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ProxyConnection(self, reader, writer)
        self._connections.add(connection)
        try:
            with suppress(ConnectionError, EOFError, OSError, asyncio.CancelledError):
                await connection.run()
        finally:
            connection.reset()
            self._connections.discard(connection)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = str(self._info.get("host") or "localhost")
        port = int(self._info.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def wait_open(self) -> None:
        """Wait until messages may pass."""
        await self._open.wait()
        if self.delay:
            await asyncio.sleep(self.delay)

    def is_unanswered(self, connection: ProxyConnection) -> bool:
        return any(connection.is_for(application) for application in self._unanswered)

    def is_refused(self, connection: ProxyConnection) -> bool:
        return any(connection.is_for(application) for application in self._refused)

    def take_order(
        self, connection: ProxyConnection, turn: protocol.ClientTurn
    ) -> FaultOrder | None:
        """Return and remove the order that matches this commit, if any."""
        if turn.commits:
            for order in self._orders:
                if connection.is_for(order.application) and turn.matches(order.pattern):
                    self._orders.remove(order)
                    return order
        return None

    def record_cut(
        self,
        connection: ProxyConnection,
        order: FaultOrder,
        turn: protocol.ClientTurn,
        committed: bool | None,
    ) -> None:
        cut = CutConnection(
            order.point, connection.application, tuple(turn.statements), time.time(), committed
        )
        with self._cut_recorded:
            self.cuts.append(cut)
            self._cut_recorded.notify_all()
