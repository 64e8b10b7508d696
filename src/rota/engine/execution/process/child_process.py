"""Worker's side of a child process that runs isolated tasks.

The child is a separate program, never a fork, because the worker has threads. It has its own process group:
signals of the terminal reach only the worker, and processes that a task has started are killed with the
child. Messages and the exit of the process are handled on the worker's event loop.
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
"""Time between a request to stop and killing the process."""

REAP_SECONDS = 1.0
LAST_MESSAGES_SECONDS = 0.2
EXIT_POLL_SECONDS = 0.02


class ChildProcess(asyncio.Protocol):
    """Child process. `on_message` receives its messages; `on_exit` is called once, after its exit."""

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
            # In this thread: the kernel kills the child when the thread that started it ends
            # (see child_main.py).
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
        """Exit code; the negative number of a signal that ended the process; None while it runs."""
        return self._process.returncode

    @property
    def is_reusable(self) -> bool:
        """True if the process can run another job."""
        return not (self._is_disconnected or self._is_stopping or self._is_reaped or self.is_killed)

    # Messages

    def send(self, message: FromWorker) -> None:
        if self._transport is None:
            self._unsent += encode(message)
        elif not self._transport.is_closing():
            self._transport.write(encode(message))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is no subclass
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
                self.kill()  # an invalid frame: the task's code has written to the socket
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
            self.kill()  # the process is dead, or cannot be reached any more
        if self._pidfd is None:
            self._poll_exit()

    # Exit

    def stop(self) -> None:
        """Ask the process to exit, and kill it after STOP_GRACE_SECONDS."""
        self._is_stopping = True
        if self._transport is not None:
            self._transport.close()
        if self._timer is None and not self._is_reaped:
            self._timer = self._loop.call_later(STOP_GRACE_SECONDS, self.kill)

    def kill(self) -> None:
        """Kill the process and its process group."""
        self.is_killed = True
        if not self._is_reaped:
            # The pid is not reused until the process is reaped. The process may have left its group.
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)

    def kill_and_reap(self) -> None:
        """Kill the process and wait REAP_SECONDS at most for its exit, which usually takes milliseconds."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_SECONDS)

    def _watch_exit(self) -> int | None:
        """Watch for the exit by a pidfd, where the system has them; return the descriptor.

        The socket is not enough: a process that the task has started may hold it open.
        """
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
            # The last messages may still be on their way.
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
    """Return the command for the child: this interpreter with the same options."""
    options = ["-P"]  # the current directory is on sys.path only if the worker has it there
    if sys.flags.optimize:
        options.append("-" + "O" * sys.flags.optimize)
    if sys.flags.dev_mode:
        options += ["-X", "dev"]
    options += [f"-W{each}" for each in sys.warnoptions]
    return [sys.executable, *options, "-m", "rota.engine.execution.process.child_main"]
