"""A process that runs isolated tasks, as the worker sees it.

It is a program of its own, never a fork: the worker has threads. It is in a process group of its own, so
what the terminal sends reaches the worker alone, and what a task has started ends with its process. All
of it happens on the worker's loop: frames are heard and sent there, and the end of the process is an
event like any other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from rota import logs
from rota.engine.execution.process.messages import (
    ChildSetup,
    FromProcess,
    FromWorker,
    MessageReader,
    encode,
)

STOP_GRACE_SECONDS = 2.0
"""Seconds a process gets that was told to stop, or is not needed any more."""

REAP_SECONDS = 1.0
LAST_MESSAGES_SECONDS = 0.2
EXIT_POLL_SECONDS = 0.02


class ChildProcess(asyncio.Protocol):
    """One process. `heard` is called with what it says, `gone` once, when it is no more."""

    def __init__(
        self,
        on_message: Callable[[ChildProcess, FromProcess], None],
        on_exit: Callable[[ChildProcess], None],
    ) -> None:
        self._on_message = on_message
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._reader: MessageReader[FromProcess] = MessageReader(FromProcess)
        self._transport: asyncio.Transport | None = None
        self._unsent = encode(ChildSetup(sys.path, sys.argv, logs.current_setup()))
        self._timer: asyncio.TimerHandle | None = None
        self._is_disconnected = self._is_stopping = self._is_reaped = False
        self.is_killed = False
        self.served_jobs = 0
        self.exited = self._loop.create_future()
        parent_socket, child_socket = socket.socketpair()
        parent_socket.setblocking(False)
        with child_socket:
            # In this thread: the kernel ends it together with the one that started it (child.py).
            try:
                self._process = subprocess.Popen(
                    [*_command_line(), str(child_socket.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(child_socket.fileno(),),
                    process_group=0,
                )
            except BaseException:
                parent_socket.close()
                raise
        self.pid = self._process.pid
        self._pidfd = self._watch_exit()
        self._connecting = self._loop.create_task(
            self._loop.create_connection(lambda: self, sock=parent_socket)
        )

    @property
    def exit_code(self) -> int | None:
        """How it ended; a signal is negative."""
        return self._process.returncode

    @property
    def is_reusable(self) -> bool:
        """Whether it can be given another job."""
        return not (self._is_disconnected or self._is_stopping or self._is_reaped or self.is_killed)

    # Talking

    def send(self, message: FromWorker) -> None:
        if self._transport is None:
            self._unsent += encode(message)
        elif not self._transport.is_closing():
            self._transport.write(encode(message))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not one by name
        self._transport.write(self._unsent)
        self._unsent = b""
        if self._is_stopping:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        messages = self._reader.feed(data)
        while True:
            try:
                message = next(messages, None)
            except ValueError:
                self.kill()  # the code has written where it must not; its process is of no more use
                return
            if message is None:
                return
            self._on_message(self, message)

    def connection_lost(self, _: Exception | None) -> None:
        self._is_disconnected = True
        if self._is_reaped:
            self._report_exit()
            return
        if not self._is_stopping:
            self.kill()  # it is dead, or else it cannot be talked to any more
        if self._pidfd is None:
            self._poll_exit()

    # Its end

    def stop(self) -> None:
        """It is not needed any more. It gets a moment to clean up."""
        self._is_stopping = True
        if self._transport is not None:
            self._transport.close()
        if self._timer is None and not self._is_reaped:
            self._timer = self._loop.call_later(STOP_GRACE_SECONDS, self.kill)

    def kill(self) -> None:
        """End it now, with all it has started."""
        self.is_killed = True
        if not self._is_reaped:
            # Its number is its own until it is reaped. It may have left its group.
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)

    def kill_and_reap(self) -> None:
        """End it now, and wait for its end. A killed process is gone within milliseconds."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_SECONDS)

    def _watch_exit(self) -> int | None:
        """Be told of its end, where the system can: what it has started may hold its socket open."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            return None
        self._loop.add_reader(descriptor, self._on_pidfd_readable)
        return descriptor

    def _on_pidfd_readable(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self.kill()
        self._process.wait()
        self._is_reaped = True
        if self._is_disconnected:
            self._report_exit()
        else:
            # What it said last is still on its way.
            self._loop.call_later(LAST_MESSAGES_SECONDS, self._report_exit)

    def _poll_exit(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(EXIT_POLL_SECONDS, self._poll_exit)
        else:
            self._is_reaped = True
            self._report_exit()

    def _report_exit(self) -> None:
        if self.exited.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self.exited.set_result(None)
        self._on_exit(self)


def _command_line() -> list[str]:
    """Run by this interpreter, set up as it is here."""
    options = ["-P"]  # the current directory is looked into only if the worker does
    if sys.flags.optimize:
        options.append("-" + "O" * sys.flags.optimize)
    if sys.flags.dev_mode:
        options += ["-X", "dev"]
    options += [f"-W{each}" for each in sys.warnoptions]
    return [sys.executable, *options, "-m", "rota.engine.execution.process.child_main"]
