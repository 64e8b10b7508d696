"""Handling of the signals that stop a process, in one place.

| used by | part | effect of a signal |
| --- | --- | --- |
| `rota serve`, supervisor | `handle_signals` | calls a function in the event loop |
| dashboard, `demo`, `dev`, `top` | `stop_on_signal` | sets an event |
| worker | `ShutdownSignals` | the first stops the worker, a later one hurries it |
| lifespan | `also_on_signal` | calls a function, then the handler of the program |
| `rota.asgi.Drain` | `SignalHandlers` | held back from the server until the app forwards it |

A stopping server informs its application only after the last request was answered. A live page or one long
request can delay that, while the worker in the same process keeps claiming jobs. The app therefore handles
the signal first.

`also_on_signal` only observes: the handlers of the program still run. `SignalHandlers` holds signals back
until the app forwards them. Servers receive signals in one of two ways: with a Python handler (uvicorn), or
through the event loop (gunicorn, hypercorn), which is woken by a byte that the interpreter writes to a file
descriptor. `SignalHandlers` temporarily replaces both the handlers and the descriptor; bytes for other
signals are passed to the former descriptor. To forward a signal, it restores everything and raises the
signal again, so the server receives exactly the same as without it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

TERMINAL_SIGNALS = (*STOP_SIGNALS, signal.SIGHUP)
"""Signals that end a program in a terminal; SIGHUP when the terminal is closed."""


@contextmanager
def handle_signals(
    callback: Callable[[signal.Signals], object],
    signals: Sequence[signal.Signals] = STOP_SIGNALS,
) -> Iterator[None]:
    """Call `callback` in the running event loop at each signal during the block."""
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, callback, number)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


@contextmanager
def stop_on_signal(signals: Sequence[signal.Signals] = STOP_SIGNALS) -> Iterator[asyncio.Event]:
    """Return an event that a signal during the block sets."""
    stopping = asyncio.Event()
    with handle_signals(lambda number: stopping.set(), signals):
        yield stopping


class ShutdownSignals:
    """Requests to stop, by signal or drain. `on_hurry` is called at each signal after that."""

    def __init__(self, on_hurry: Callable[[], None]) -> None:
        self.drain_requested = False
        """True if a drain was requested before any signal."""
        self._loop = asyncio.get_running_loop()
        self._stop_event = asyncio.Event()
        self._on_hurry = on_hurry

    def handle_signals(self) -> AbstractContextManager[None]:
        """Handle signals during the block. A signal during startup takes effect when the startup is
        complete."""
        return handle_signals(self._on_signal)

    async def wait(self) -> None:
        await self._stop_event.wait()

    def request_drain(self) -> None:
        if not self._stop_event.is_set():
            self.drain_requested = True
            self._stop_event.set()

    def request_drain_threadsafe(self) -> None:
        """Request a drain from any thread."""
        self._loop.call_soon_threadsafe(self.request_drain)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop_event.is_set():
            self._on_hurry()
        self._stop_event.set()


@contextmanager
def also_on_signal(callback: Callable[[], object]) -> Iterator[None]:
    """Call `callback` at a signal during the block, then the previous handler.

    The callback runs between any two bytecodes of the main thread. A program that receives signals through
    its event loop still does. Outside the main thread this does nothing, because signals are not delivered
    there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Only signals with a Python handler: default and ignored signals keep their effect.
    previous: dict[int, Any] = {
        number: handler for number in STOP_SIGNALS if callable(handler := signal.getsignal(number))
    }

    def chained_handler(number: int, frame: FrameType | None) -> None:
        callback()
        previous[number](number, frame)

    for number in previous:
        signal.signal(number, chained_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            # Keep a handler that was installed in the meantime.
            if signal.getsignal(number) is chained_handler:
                signal.signal(number, handler)


class SignalHandlers:
    """Handlers that hold back SIGTERM and SIGINT.

    `on_signal` is called in the event loop with the number of the signal.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: dict[int, Any] = {}
        self._wakeup_fd = -1
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def install(self) -> bool:
        """Install the handlers. Return False outside the main thread, which alone receives signals."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._loop = asyncio.get_running_loop()
        reader, writer = self._sockets = socket.socketpair()
        for each in self._sockets:
            each.setblocking(False)
        self._handlers = {number: _current_handler(number) for number in STOP_SIGNALS}
        self._wakeup_fd = self._set_handlers(writer.fileno())
        self._loop.add_reader(reader.fileno(), self._read_wakeups)
        return True

    def _set_handlers(self, wakeup_fd: int) -> int:
        for number in STOP_SIGNALS:
            signal.signal(number, self._handle)
        return signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed: there is nothing left to stop
            self._loop.call_soon_threadsafe(self._on_signal, number)

    def _read_wakeups(self) -> None:
        """Drain the wake-up bytes and pass on those of other signals. The bytes only wake the loop."""
        assert self._sockets is not None
        with suppress(BlockingIOError):
            other_signals = bytes(
                each for each in self._sockets[0].recv(4096) if each not in STOP_SIGNALS
            )
            if other_signals and self._wakeup_fd != -1:
                with suppress(OSError):
                    os.write(self._wakeup_fd, other_signals)

    def forward(self, number: int) -> None:
        """Deliver this signal to the server, then hold back the next one again."""
        if self._sockets is None:
            return
        self._restore_handlers()
        signal.raise_signal(number)
        self._set_handlers(self._sockets[1].fileno())

    def uninstall(self) -> None:
        """Restore the handlers of the server."""
        if self._sockets is None or self._loop is None:
            return
        self._restore_handlers()
        reader, writer = self._sockets
        self._loop.remove_reader(reader.fileno())
        self._sockets = None
        reader.close()
        writer.close()

    def _restore_handlers(self) -> None:
        assert self._sockets is not None
        for number, handler in self._handlers.items():
            # Keep a handler that was installed in the meantime.
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
        current_fd = signal.set_wakeup_fd(self._wakeup_fd, warn_on_full_buffer=False)
        if current_fd != self._sockets[1].fileno():
            signal.set_wakeup_fd(current_fd, warn_on_full_buffer=False)


def _current_handler(number: int) -> Any:
    # None: the handler was not set from Python and cannot be restored.
    handler = signal.getsignal(number)
    return signal.SIG_DFL if handler is None else handler
