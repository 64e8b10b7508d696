"""A proxy in front of PostgreSQL that breaks connections in the ways that networks do.

    with Proxy(dsn) as proxy:
        app = Rota(proxy.dsn)
        proxy.cut("answered")       # the next commit happens, and nobody is told
        …
        [cut] = proxy.cuts          # where it was, and whether the server had committed

It follows the messages, so that a connection can be cut between a commit and its answer. A commit is a
COMMIT of a transaction that wrote, or the end of a turn (Query, or the Sync of a pipeline) that wrote
outside of one.

It runs in a thread of its own. Whoever calls it is answered when what was asked for is so.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, Self, TypeVar

from rota.testing import wire
from rota.testing.link import Cut, Link, Order, Where

T = TypeVar("T")


class Proxy:
    """One port on this machine, in front of one server."""

    def __init__(self, dsn: str) -> None:
        from psycopg.conninfo import conninfo_to_dict

        self._info = conninfo_to_dict(dsn)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rota proxy", daemon=True)
        self._started = threading.Event()
        self._links: set[Link] = set()
        self._orders: list[Order] = []
        self._mute: set[str | None] = set()  # whose new connections are not answered
        self._refused: set[str | None] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._told = threading.Condition()
        self.cuts: list[Cut] = []
        self.delay = 0.0
        """Seconds that every message takes longer, each way."""

    # -- its life

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._ask(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def dsn(self) -> str:
        """What a client connects to instead."""
        return self.dsn_for(None)

    def dsn_for(self, application: str | None) -> str:
        """The same for a client that goes by a name of its own, so that it alone can be cut off."""
        from psycopg.conninfo import make_conninfo

        host: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "sslmode": "disable"}
        if application:
            host["application_name"] = application
        given = {name: value for name, value in self._info.items() if name != "hostaddr"}
        return make_conninfo(**{**given, **host})

    # -- what it can be told; `only` is the application name of those it concerns

    def cut(
        self,
        where: Where,
        *,
        matching: str | None = None,
        only: str | None = None,
        hold: float = 1.0,
    ) -> None:
        """Cut the connection of whoever commits next, of those whose statements match. Once."""
        pattern = re.compile(matching.encode()) if matching else None
        self._ask(lambda: self._orders.append(Order(where, pattern, only, hold)))

    def until_cut(self, times: int = 1, *, within: float = 10.0) -> list[Cut]:
        """Wait until so many cuts have been made and the server has had its say; answers them all."""
        with self._told:
            if not self._told.wait_for(lambda: len(self.cuts) >= times, within):
                raise TimeoutError(f"{len(self.cuts)} of {times} cuts were met within {within:g} s")
            return list(self.cuts)

    def forget_cuts(self) -> int:
        """Take back the cuts that nobody has met; answers how many."""

        def forget() -> int:
            left = len(self._orders)
            self._orders.clear()
            return left

        return self._ask(forget)

    def reset(self, *, only: str | None = None) -> int:
        """Break connections with a reset. Answers how many there were."""
        return self._each(only, Link.reset)

    def drop(self, *, only: str | None = None) -> int:
        """Let connections go dead: nothing passes and neither side is told. New ones are taken and not
        answered until `heal`."""
        self._ask(lambda: self._mute.add(only))
        return self._each(only, Link.lose)

    def half_open(self, gone: Literal["client", "server"], *, only: str | None = None) -> int:
        """End connections on one side, the one that is `gone`, and let the other believe in them."""
        return self._each(only, Link.leave_client if gone == "client" else Link.leave_server)

    def hold(self) -> None:
        """Let nothing pass for now; it all arrives after `heal`."""
        self._ask(self._open.clear)

    def refuse(self, *, only: str | None = None) -> None:
        """Break new connections as soon as they say who they are, until `heal`."""
        self._ask(lambda: self._refused.add(only))

    def heal(self) -> None:
        """New connections work, and what was held arrives. Those that went dead stay so."""

        def heal() -> None:
            self._mute.clear()
            self._refused.clear()
            self._open.set()

        self._ask(heal)

    # -- in the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", 0)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def _ask(self, what: Callable[[], T]) -> T:
        async def ask() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(10)

    def _each(self, only: str | None, what: Callable[[Link], None]) -> int:
        def each() -> int:
            links = [link for link in self._links if link.lives and link.is_for(only)]
            for link in links:
                what(link)
            return len(links)

        return self._ask(each)

    def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.reset()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        self._links.add(link)
        try:
            with suppress(ConnectionError, EOFError, OSError, asyncio.CancelledError):
                await link.run()
        finally:
            link.reset()
            self._links.discard(link)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = str(self._info.get("host") or "localhost")
        port = int(self._info.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def passage(self) -> None:
        """Wait until something may pass."""
        await self._open.wait()
        if self.delay:
            await asyncio.sleep(self.delay)

    def is_mute(self, link: Link) -> bool:
        return any(link.is_for(only) for only in self._mute)

    def refuses(self, link: Link) -> bool:
        return any(link.is_for(only) for only in self._refused)

    def order_for(self, link: Link, turn: wire.Turn) -> Order | None:
        """What was asked for a commit like this one; it is done with then."""
        if turn.commits:
            for order in self._orders:
                if link.is_for(order.only) and turn.mentions(order.matching):
                    self._orders.remove(order)
                    return order
        return None

    def note(self, link: Link, order: Order, turn: wire.Turn, committed: bool | None) -> None:
        cut = Cut(order.where, link.application, tuple(turn.texts), time.time(), committed)
        with self._told:
            self.cuts.append(cut)
            self._told.notify_all()
