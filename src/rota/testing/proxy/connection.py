"""Connection through the proxy: forwards messages both ways until it is broken."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rota.testing.proxy import protocol

if TYPE_CHECKING:
    from rota.testing.proxy.proxy import Proxy

CutPoint = Literal["before", "sent", "answered", "late"]
"""Point at which a connection is cut.

before    the server never receives the commit
sent      the client is cut off when the commit has been sent
answered  the client is cut off when the server has committed
late      the client is cut off at once, and the commit is forwarded later
"""

_ROLLED_BACK = b"C\x00\x00\x00\x0dROLLBACK\x00"

SERVER_ANSWER_SECONDS = 30.0
"""Timeout for the server's answer after its client was cut off."""


@dataclass(frozen=True, slots=True)
class CutConnection:
    """A connection that was cut at a commit. `committed` is the server's answer, None if unknown."""

    point: CutPoint
    application: str
    statements: tuple[bytes, ...]
    at: float
    committed: bool | None = None


@dataclass(frozen=True, slots=True)
class FaultOrder:
    point: CutPoint
    pattern: re.Pattern[bytes] | None
    application: str | None
    hold_seconds: float


class ProxyConnection:
    """A client and its connection to the server."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._to_server: asyncio.StreamWriter | None = None
        self._splitter = protocol.MessageSplitter(typed=False)
        self._tracker = protocol.TurnTracker()
        self._is_silent = False
        self._answered_turns = 0  # turns answered by the server, without its greeting
        self._is_greeted = False
        self._answer_failed = False  # True if the current answer contains an error
        self._withheld_turn: tuple[int, asyncio.Future[bool | None]] | None = None
        self.application = ""
        self.is_alive = True

    def is_for(self, application: str | None) -> bool:
        return application is None or application == self.application

    # -- faults

    def reset(self) -> None:
        self.is_alive = False
        self.reset_client()
        self._close_server()

    def reset_client(self) -> None:
        """Reset the client's connection; the server's remains open."""
        self._is_silent = True
        raw_socket = self._to_client.get_extra_info("socket")
        with suppress(OSError, AttributeError):
            raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._to_client.transport.abort()

    def disconnect_server(self) -> None:
        """Close the server's connection; the client's remains open."""
        self._is_silent = True
        self._close_server()

    def go_silent(self) -> None:
        self._is_silent = True

    def _close_server(self) -> None:
        if self._to_server is not None:
            self._to_server.close()

    # -- forwarding

    async def run(self) -> None:
        startup = await self._read_startup()
        if startup is None:
            return
        if self._proxy.is_refused(self):
            return
        if self._proxy.is_unanswered(self):
            self._is_silent = True
            await self._discard_input(self._from_client)
            return
        reader, self._to_server = await self._proxy.connect()
        self._to_server.write(startup)
        if protocol.request_code(startup) == protocol.CANCEL_REQUEST:
            await self._to_server.drain()
            await self._discard_input(reader)  # the server closes once it has handled the request
            return
        to_client = asyncio.create_task(self._forward_to_client(reader))
        try:
            await self._forward_to_server()
        finally:
            if self._is_silent:
                # A silent connection stays open until the client closes it or the proxy ends.
                await asyncio.wait([to_client])
            to_client.cancel()

    async def _read_startup(self) -> bytes | None:
        """Return the client's startup message or cancel request. Encryption is declined."""
        while data := await self._from_client.read(65536):
            for message in self._splitter.feed(data):
                if protocol.request_code(message) in (protocol.SSL_REQUEST, protocol.GSS_REQUEST):
                    self._to_client.write(b"N")
                    continue
                self.application = protocol.application_name(message)
                self._splitter.typed = True
                return message
        return None

    async def _forward_to_server(self) -> None:
        assert self._to_server is not None
        while data := await self._from_client.read(65536):
            if self._is_silent:
                continue
            for message in self._splitter.feed(data):
                turn = self._tracker.on_client_message(message)
                order = self._proxy.take_order(self, turn) if turn else None
                await self._proxy.wait_open()
                if self._is_broken():
                    break
                if turn and order:
                    await self._cut(order, turn, message)
                    return
                self._to_server.write(message)
            if not self._is_broken():
                await self._to_server.drain()

    def _is_broken(self) -> bool:
        return self._is_silent or self._to_server is None or self._to_server.is_closing()

    async def _forward_to_client(self, reader: asyncio.StreamReader) -> None:
        splitter = protocol.MessageSplitter(typed=True)
        with suppress(ConnectionError):  # a killed server resets the connection
            while data := await reader.read(65536):
                for message in splitter.feed(data):
                    self._track_failure(message)
                    await self._proxy.wait_open()
                    if not (self._is_silent or self._is_withheld() or self._to_client.is_closing()):
                        self._to_client.write(message)
                    if message[:1] == b"Z":
                        self._on_ready(message)
                if not self._is_silent:
                    await self._to_client.drain()
        self._resolve_cut(committed=None)
        if not self._is_silent:
            self._to_client.close()

    def _resolve_cut(self, *, committed: bool | None) -> None:
        if self._withheld_turn is not None and not self._withheld_turn[1].done():
            self._withheld_turn[1].set_result(committed)

    def _track_failure(self, message: bytes) -> None:
        # The server answers COMMIT of a failed transaction with ROLLBACK, not with an error.
        self._answer_failed |= message[:1] == b"E" or message == _ROLLED_BACK

    def _is_withheld(self) -> bool:
        """True if the current message belongs to the answer that the client must not get."""
        return (
            self._withheld_turn is not None and self._answered_turns + 1 >= self._withheld_turn[0]
        )

    def _on_ready(self, message: bytes) -> None:
        self._tracker.on_server_ready(message[5:6])
        if not self._is_greeted:
            self._is_greeted = True
        else:
            self._answered_turns += 1
            if self._withheld_turn is not None and self._withheld_turn[0] == self._answered_turns:
                self._resolve_cut(committed=not self._answer_failed)
        self._answer_failed = False

    async def _cut(self, order: FaultOrder, turn: protocol.ClientTurn, message: bytes) -> None:
        assert self._to_server is not None
        if order.point == "before":
            self.reset()
            self._proxy.record_cut(self, order, turn, False)
            return
        answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._withheld_turn = (turn.number, answer)
        if order.point == "late":
            self.reset_client()
            await asyncio.sleep(order.hold_seconds)
        self._to_server.write(message)
        await self._to_server.drain()
        if order.point == "sent":
            self.reset_client()
        committed: bool | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVER_ANSWER_SECONDS):
                committed = await answer
        self._proxy.record_cut(self, order, turn, committed)
        self.reset()

    async def _discard_input(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(65536):
            pass
