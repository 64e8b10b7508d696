"""SIGTERM and SIGINT, heard before the server hears them, and passed on to it when we say so.

Servers listen in one of two ways: with a handler of Python's (uvicorn), or through the event loop
(gunicorn, hypercorn), which hears of a signal by a byte that the interpreter writes to a descriptor. So
both are ours for a time, the handlers and the descriptor. Bytes for other signals go on to where they went
before. To pass a signal on, everything is put back as it was and the signal is raised anew: the server gets
exactly what it would have got without us.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """`hear` is called in the event loop, with the number of a signal that has come."""

    def __init__(self, hear: Callable[[int], None]) -> None:
        self._hear = hear
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: dict[int, Any] = {}
        self._descriptor = -1
        self._ends: tuple[socket.socket, socket.socket] | None = None

    def take(self) -> bool:
        """From now on they are ours. False: this is not the thread that hears signals."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._loop = asyncio.get_running_loop()
        ours, theirs = self._ends = socket.socketpair()
        for each in self._ends:
            each.setblocking(False)
        self._handlers = {number: _handler_of(number) for number in NUMBERS}
        self._descriptor = self._listen(theirs.fileno())
        self._loop.add_reader(ours.fileno(), self._read)
        return True

    def _listen(self, descriptor: int) -> int:
        for number in NUMBERS:
            signal.signal(number, self._heard)
        return signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed: there is nothing left to stop
            self._loop.call_soon_threadsafe(self._hear, number)

    def _read(self) -> None:
        """That there is something to read has woken the loop, which is all that ours are for."""
        assert self._ends is not None
        with suppress(BlockingIOError):
            others = bytes(each for each in self._ends[0].recv(4096) if each not in NUMBERS)
            if others and self._descriptor != -1:
                with suppress(OSError):
                    os.write(self._descriptor, others)

    def pass_on(self, number: int) -> None:
        """Let the server have this one; the next is ours again."""
        if self._ends is None:
            return
        self._put_back()
        signal.raise_signal(number)
        self._listen(self._ends[1].fileno())

    def give_back(self) -> None:
        """They are the server's again."""
        if self._ends is None or self._loop is None:
            return
        self._put_back()
        ours, theirs = self._ends
        self._loop.remove_reader(ours.fileno())
        self._ends = None
        ours.close()
        theirs.close()

    def _put_back(self) -> None:
        assert self._ends is not None
        for number, handler in self._handlers.items():
            # Whoever has put himself in our place meanwhile stays there.
            if signal.getsignal(number) == self._heard:
                signal.signal(number, handler)
        now = signal.set_wakeup_fd(self._descriptor, warn_on_full_buffer=False)
        if now != self._ends[1].fileno():
            signal.set_wakeup_fd(now, warn_on_full_buffer=False)


def _handler_of(number: int) -> Any:
    # None: it was not set by Python, and cannot be set again.
    handler = signal.getsignal(number)
    return signal.SIG_DFL if handler is None else handler
