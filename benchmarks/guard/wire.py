"""Proxy in front of the server's socket that counts statements and round trips.

A statement is an Execute or a simple Query. A round trip ends when the server has answered all messages of
a connection: several transactions that are sent together are one round trip.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.places import BENCH

STARTUP = 3 << 16
"""Protocol version in a startup message; any other value is a request to cancel or to encrypt."""


class Wire:
    def __init__(self, dsn: str, upstream: str) -> None:
        self.dsn = dsn
        self._upstream = upstream
        self.statements = 0
        self.round_trips = 0

    async def serve(self, path: str) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connected, path)

    async def _connected(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        server, to_server = await asyncio.open_unix_connection(self._upstream)
        connection = _Connection(self)
        await asyncio.gather(
            _forward(client, to_server, connection.sent),
            _forward(server, to_client, connection.received),
        )


class _Connection:
    """Messages of one connection, in both directions."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._unanswered = 0
        self._frontend = _Messages(has_startup=True)
        self._backend = _Messages(has_startup=False)

    def sent(self, data: bytes) -> None:
        for kind in self._frontend.feed(data):
            self._wire.statements += kind in b"EQ"
            self._unanswered += kind in b"SQ" or kind == b"startup"

    def received(self, data: bytes) -> None:
        for kind in self._backend.feed(data):
            if kind == b"Z":
                self._unanswered -= 1
                self._wire.round_trips += self._unanswered == 0


class _Messages:
    """Parser that yields the kinds of the messages in a stream of bytes."""

    def __init__(self, *, has_startup: bool) -> None:
        self._has_startup = has_startup
        self._data = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._data += data
        at = 0
        while True:
            head = 4 if self._has_startup else 5
            if len(self._data) - at < head + 4 * self._has_startup:
                break
            length = int.from_bytes(self._data[at + head - 4 : at + head]) + head - 4
            if len(self._data) - at < length:
                break
            if self._has_startup:
                if int.from_bytes(self._data[at + 4 : at + 8]) == STARTUP:
                    self._has_startup = False
                    yield b"startup"
            else:
                yield self._data[at : at + 1]
            at += length
        self._data = self._data[at:]


async def _forward(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, seen: Callable[[bytes], None]
) -> None:
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            seen(data)
            target.write(data)
            await target.drain()
    target.close()


@contextmanager
def counted(dsn: str) -> Iterator[Wire]:
    """Run a proxy in front of the server of `dsn`, which must use a Unix socket."""
    [directory] = re.findall(r"host=([^&]+)", dsn)
    with TemporaryDirectory(prefix="wire-", dir=BENCH) as own:
        wire = Wire(dsn.replace(directory, own), str(Path(directory, ".s.PGSQL.5432")))
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(wire.serve(str(Path(own, ".s.PGSQL.5432"))))
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield wire
        finally:
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
