"""One connection through the proxy: what a client says goes to the server, and back, until it is broken."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from rota.testing import wire

Where = Literal["before", "sent", "answered", "late"]
"""before: the server never hears of the commit. sent: the client is cut off when the commit is on its
way. answered: when the server has committed. late: at once, and the commit is passed on only later."""

_ROLLED_BACK = b"C\x00\x00\x00\x0dROLLBACK\x00"

ANSWER_WITHIN = 30.0
"""Seconds to wait for a server whose client has been cut off."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One connection that was cut at a commit. `committed` is what the server said, None while it has said
    nothing."""

    where: Where
    application: str
    texts: tuple[bytes, ...]
    at: float
    committed: bool | None = None


@dataclass(frozen=True, slots=True)
class Order:
    where: Where
    matching: re.Pattern[bytes] | None
    only: str | None
    hold: float


class Office(Protocol):
    """What a link asks of its proxy."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]: ...

    async def passage(self) -> None:
        """Wait until something may pass."""

    def is_mute(self, link: Link) -> bool: ...

    def refuses(self, link: Link) -> bool: ...

    def order_for(self, link: Link, turn: wire.Turn) -> Order | None: ...

    def note(self, link: Link, order: Order, turn: wire.Turn, committed: bool | None) -> None: ...


class Link:
    """One client, and its connection to the server."""

    def __init__(
        self, proxy: Office, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._to_server: asyncio.StreamWriter | None = None
        self._frames = wire.Frames(typed=False)
        self._turns = wire.Turns()
        self._lost = False
        self._answers = 0  # turns the server has answered; its greeting is none
        self._greeted = False
        self._failed = False  # whether the answer that is coming in has an error in it
        self._last: tuple[int, asyncio.Future[bool | None]] | None = None
        self.application = ""
        self.lives = True

    def is_for(self, only: str | None) -> bool:
        return only is None or only == self.application

    # -- breaking it

    def reset(self) -> None:
        self.lives = False
        self.leave_client()
        self._hang_up()

    def leave_client(self) -> None:
        """The client gets a reset; the server is not told."""
        self._lost = True
        raw = self._to_client.get_extra_info("socket")
        with suppress(OSError, AttributeError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._to_client.transport.abort()

    def leave_server(self) -> None:
        """The server's side ends; the client is not told."""
        self._lost = True
        self._hang_up()

    def lose(self) -> None:
        self._lost = True

    def _hang_up(self) -> None:
        if self._to_server is not None:
            self._to_server.close()

    # -- passing it on

    async def run(self) -> None:
        startup = await self._opening()
        if startup is None:
            return
        if self._proxy.refuses(self):
            return
        if self._proxy.is_mute(self):
            self._lost = True
            await self._swallow(self._from_client)
            return
        reader, self._to_server = await self._proxy.connect()
        self._to_server.write(startup)
        if wire.code_of(startup) == wire.CANCEL_REQUEST:
            await self._to_server.drain()
            await self._swallow(reader)  # it is heard when the server hangs up, not before
            return
        back = asyncio.create_task(self._back(reader))
        try:
            await self._forth()
        finally:
            if self._lost:
                # Who was told nothing stays, until he goes by himself or the proxy ends.
                await asyncio.wait([back])
            back.cancel()

    async def _opening(self) -> bytes | None:
        """The client's start-up, or its wish to cancel. Encryption is declined."""
        while data := await self._from_client.read(65536):
            for message in self._frames.feed(data):
                if wire.code_of(message) in (wire.SSL_REQUEST, wire.GSS_REQUEST):
                    self._to_client.write(b"N")
                    continue
                self.application = wire.application_of(message)
                self._frames.typed = True
                return message
        return None

    async def _forth(self) -> None:
        """From the client to the server."""
        assert self._to_server is not None
        while data := await self._from_client.read(65536):
            if self._lost:
                continue
            for message in self._frames.feed(data):
                turn = self._turns.said(message)
                order = self._proxy.order_for(self, turn) if turn else None
                await self._proxy.passage()
                if self._is_broken():
                    break
                if turn and order:
                    await self._cut(order, turn, message)
                    return
                self._to_server.write(message)
            if not self._is_broken():
                await self._to_server.drain()

    def _is_broken(self) -> bool:
        return self._lost or self._to_server is None or self._to_server.is_closing()

    async def _back(self, reader: asyncio.StreamReader) -> None:
        """From the server to the client."""
        frames = wire.Frames(typed=True)
        with suppress(ConnectionError):  # a server that was killed resets the line
            while data := await reader.read(65536):
                for message in frames.feed(data):
                    self._heard(message)
                    await self._proxy.passage()
                    if not (self._lost or self._is_withheld() or self._to_client.is_closing()):
                        self._to_client.write(message)
                    if message[:1] == b"Z":
                        self._ready(message)
                if not self._lost:
                    await self._to_client.drain()
        self._settle(committed=None)
        if not self._lost:
            self._to_client.close()

    def _settle(self, *, committed: bool | None) -> None:
        if self._last is not None and not self._last[1].done():
            self._last[1].set_result(committed)

    def _heard(self, message: bytes) -> None:
        # A COMMIT of a transaction that has failed is answered by a word, not by an error.
        self._failed |= message[:1] == b"E" or message == _ROLLED_BACK

    def _is_withheld(self) -> bool:
        """Whether this belongs to the answer that the client must not get."""
        return self._last is not None and self._answers + 1 >= self._last[0]

    def _ready(self, message: bytes) -> None:
        self._turns.answered(message[5:6])
        if not self._greeted:
            self._greeted = True
        else:
            self._answers += 1
            if self._last is not None and self._last[0] == self._answers:
                self._settle(committed=not self._failed)
        self._failed = False

    async def _cut(self, order: Order, turn: wire.Turn, message: bytes) -> None:
        assert self._to_server is not None
        if order.where == "before":
            self.reset()
            self._proxy.note(self, order, turn, False)
            return
        answered: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._last = (turn.number, answered)
        if order.where == "late":
            self.leave_client()
            await asyncio.sleep(order.hold)
        self._to_server.write(message)
        await self._to_server.drain()
        if order.where == "sent":
            self.leave_client()
        committed: bool | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN):
                committed = await answered
        self._proxy.note(self, order, turn, committed)
        self.reset()

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(65536):
            pass
