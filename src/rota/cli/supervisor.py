"""Several processes under one parent: workers, or web processes that share a socket.

The parent runs no job, answers no request and opens no connection. It starts the processes, passes on
SIGTERM and SIGINT, and starts another in the place of one that dies, later each time it dies soon. It gives
up when one does not even come up, again and again. One that somebody has drained leaves its place empty;
when all have, so does the parent. Each child is a program of its own (no fork), in a process group of its
own: Ctrl-C reaches the parent alone, which passes it on once, for a second signal is a wish to hurry.

The first child goes first. If it cannot start, the others could not either, and its one line on stderr
is enough.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rota.cli.exit_codes import FAILED, NO_DATABASE, OK
from rota.cli.parent_pipe import DRAINED, UP

log = logging.getLogger("rota")

FIRST_RESTART_DELAY_SECONDS = 0.2
MAX_RESTART_DELAY_SECONDS = 30.0
NO_DATABASE_DELAY_SECONDS = 3.0
STABLE_AFTER_SECONDS = 10.0
"""Seconds after which a process counts as having worked."""

MAX_FAILED_STARTS = 5
"""Processes in a row, one in the place of the other, that do not come up: then it all ends."""

STOPPED_EXIT_CODES = {OK, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT}
"""How a child may end that was told to stop, be it before it could do so by itself."""


class SupervisedProcess:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process, parent_socket: socket.socket) -> None:
        self._process = process
        self._socket = parent_socket
        self._began = time.monotonic()
        self.pid = process.pid
        self.is_up = False
        self.was_drained = False

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        descriptors: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> SupervisedProcess:
        """`errors`: the file that what it says goes to; None: where this process says things."""
        parent_socket, child_socket = socket.socketpair()
        parent_socket.setblocking(False)
        with child_socket:
            process = await asyncio.create_subprocess_exec(
                *command,
                "--parent-pipe",
                str(child_socket.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                pass_fds=(child_socket.fileno(), *descriptors),
                process_group=0,
            )
        return cls(process, parent_socket)

    async def wait_until_up(self) -> bool:
        """Wait until it is up, or has ended. Is it up?"""
        if self.is_up:
            return True
        with suppress(ConnectionError):
            self.is_up = await asyncio.get_running_loop().sock_recv(self._socket, 1) == UP
        return self.is_up

    async def wait_exit(self) -> int:
        """Its exit code; a signal that ended it is negative."""
        with self._socket:
            code = await self._process.wait()
            with suppress(OSError):
                self.was_drained = code == OK and DRAINED in self._socket.recv(2)
            return code

    @property
    def is_stable(self) -> bool:
        return time.monotonic() - self._began >= STABLE_AFTER_SECONDS

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


class Supervisor:
    """`what` its processes are called; `sockets`: what all of them accept from, until it is to end."""

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        title: str = "worker process",
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        self._command = command
        self._size = size
        self._title = title
        self._sockets = sockets
        self._children: set[SupervisedProcess] = set()
        self._stopping = asyncio.Event()
        self._signals_received = 0
        self._exit_code = OK

    async def run(self) -> int:
        """Work until told to stop. Answers an exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number)
        first = await self._start()
        if not await first.wait_until_up() and not self._stopping.is_set():
            code = await first.wait_exit()
            return code if code > 0 else FAILED
        await asyncio.gather(
            self._keep_running(first), *(self._keep_running() for _ in range(1, self._size))
        )
        return self._exit_code

    def stop(self, number: signal.Signals) -> None:
        """Pass a signal on. The first drains, the second hurries, a third does not wait any more."""
        self._signals_received += 1
        self._stopping.set()
        if self._signals_received == 1:
            log.info("stopping %s %ses; once more to hurry them", len(self._children), self._title)
            # Or they stay open when all who accept from them have stopped, and whoever connects waits.
            for each in self._sockets:
                each.close()
        for child in self._children:
            child.send_signal(number if self._signals_received < 3 else signal.SIGKILL)

    async def _start(self) -> SupervisedProcess:
        child = await SupervisedProcess.start(
            self._command, [each.fileno() for each in self._sockets]
        )
        self._children.add(child)
        if self._stopping.is_set():
            child.send_signal(signal.SIGTERM)
        return child

    async def _keep_running(self, child: SupervisedProcess | None = None) -> None:
        """Keep one place filled."""
        deaths = failed_starts = 0
        while not self._stopping.is_set():
            child = child or await self._start()
            await child.wait_until_up()
            code = await child.wait_exit()
            self._children.discard(child)
            if self._stopping.is_set():
                break
            if child.was_drained:
                log.info("%s %s was drained and has left its place", self._title, child.pid)
                return
            if child.is_stable:
                deaths = 0
            # Nothing is wrong with a process that could not reach the database: it comes back.
            without_database = code == NO_DATABASE and not child.is_up
            deaths += not without_database
            # One that came up may have died of its jobs, and those do not kill for ever.
            failed_starts = 0 if child.is_up else failed_starts + (not without_database)
            if failed_starts >= MAX_FAILED_STARTS:
                log.error(
                    "%s %s %s before it was up, the %sth in a row; giving up, see what it said above",
                    self._title,
                    child.pid,
                    describe_exit(code),
                    failed_starts,
                )
                self._exit_code = FAILED
                self.stop(signal.SIGTERM)
                return
            delay = NO_DATABASE_DELAY_SECONDS if without_database else restart_delay(deaths)
            log.warning(
                "%s %s %s unexpectedly; another starts in %.1f s",
                self._title,
                child.pid,
                describe_exit(code),
                delay,
            )
            child = None
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()
        if child is not None:
            await self._wait_stopped(child)

    async def _wait_stopped(self, child: SupervisedProcess) -> None:
        code = await child.wait_exit()
        self._children.discard(child)
        if code not in STOPPED_EXIT_CODES:
            log.warning("%s %s %s while stopping", self._title, child.pid, describe_exit(code))
            self._exit_code = FAILED


def restart_delay(deaths: int) -> float:
    """Seconds until the next one starts, after so many that died soon."""
    return min(FIRST_RESTART_DELAY_SECONDS * 2.0 ** min(deaths - 1, 16), MAX_RESTART_DELAY_SECONDS)


def describe_exit(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def rota_command(arguments: Sequence[str]) -> list[str]:
    """The command line of one worker process."""
    return [sys.executable, "-m", "rota", *arguments]
