"""Supervisor of several processes: workers, or web processes that share a socket.

The parent runs no job, answers no request and opens no connection.

* It starts the processes and forwards SIGTERM and SIGINT.
* It replaces a process that dies, with a growing delay if it dies soon after its start.
* It gives up if a process repeatedly fails to start.
* It does not replace a process that was drained, and exits when all were.

Each child is a new program (no fork) in its own process group. Ctrl-C reaches only the parent, which
forwards it once, because a second signal shortens the drain.

The first child starts before the others. If it fails to start, the others would fail too, and its one
error line is enough.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import rich_click as click

from rota.app.shutdown_signals import handle_signals
from rota.cli.exit_codes import FAILED, NO_DATABASE, OK
from rota.cli.parent_pipe import DRAINED, UP
from rota.cli.target import Target

log = logging.getLogger("rota")

FIRST_RESTART_DELAY_SECONDS = 0.2
MAX_RESTART_DELAY_SECONDS = 30.0
NO_DATABASE_DELAY_SECONDS = 3.0
STABLE_AFTER_SECONDS = 10.0
"""Time after which a process counts as stable."""

MAX_FAILED_STARTS = 5
"""Consecutive failed starts in one place after which the supervisor gives up."""

STOPPED_EXIT_CODES = {OK, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT}
"""Exit codes of a child that was asked to stop, even before it could handle the signal."""


class SupervisedProcess:
    """Child process, started and observed by the parent."""

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
        """Start a process. `stderr` is a file descriptor; None inherits this process's stderr."""
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
        """Wait until the process is up or has ended. Return True if it is up."""
        if self.is_up:
            return True
        with suppress(ConnectionError):
            self.is_up = await asyncio.get_running_loop().sock_recv(self._socket, 1) == UP
        return self.is_up

    async def wait_exit(self) -> int:
        """Wait for the end. Return the exit code, negative for a signal."""
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
    """Supervisor of `size` processes.

    `title` names them in log lines. All of them accept from `sockets`, which are closed at shutdown.
    """

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
        """Run until a signal arrives. Return the exit code."""
        with handle_signals(self.stop):
            return await self._run()

    async def _run(self) -> int:
        first = await self._start()
        if not await first.wait_until_up() and not self._stopping.is_set():
            code = await first.wait_exit()
            return code if code > 0 else FAILED
        await asyncio.gather(
            self._keep_running(first), *(self._keep_running() for _ in range(1, self._size))
        )
        return self._exit_code

    def stop(self, number: signal.Signals) -> None:
        """Forward a signal. The first one drains, the second shortens the drain, the third kills."""
        self._signals_received += 1
        self._stopping.set()
        if self._signals_received == 1:
            log.info(
                "stopping %s %ses; send the signal again to shorten this",
                len(self._children),
                self._title,
            )
            # Else they would stay open after all children have stopped, and clients that connect
            # would hang.
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
        """Keep one process running, replacing it when it dies."""
        deaths = failed_starts = 0
        while not self._stopping.is_set():
            child = child or await self._start()
            await child.wait_until_up()
            code = await child.wait_exit()
            self._children.discard(child)
            if self._stopping.is_set():
                break
            if child.was_drained:
                log.info("%s %s was drained and is not replaced", self._title, child.pid)
                return
            if child.is_stable:
                deaths = 0
            # A process that could not reach the database is not faulty: it is started again.
            without_database = code == NO_DATABASE and not child.is_up
            deaths += not without_database
            # A process that was up may have died of its jobs, which are quarantined after a few
            # crashes.
            failed_starts = 0 if child.is_up else failed_starts + (not without_database)
            if failed_starts >= MAX_FAILED_STARTS:
                log.error(
                    "%s %s %s before it was ready, failure %s in a row; giving up; see its log lines above",
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
    """Return the seconds until the next start, after `deaths` processes that died soon."""
    return min(FIRST_RESTART_DELAY_SECONDS * 2.0 ** min(deaths - 1, 16), MAX_RESTART_DELAY_SECONDS)


def describe_exit(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def rota_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a child process."""
    return [sys.executable, "-m", "rota", *arguments]


def child_arguments(target: Target, *, without: Collection[str]) -> list[str]:
    """Return the options of the current command for a child process, with the database of `target`.

    `without` contains the names of parameters that the child does not get.
    """
    context = click.get_current_context()
    assert context is not None
    values = {**context.params, "app": target.app, "dsn": target.dsn, "schema": target.schema}
    arguments: list[str] = []
    for option in context.command.params:
        value = values.get(option.name or "")
        if not isinstance(option, click.Option) or option.hidden or option.name in without:
            continue
        if option.is_flag:
            arguments += [option.opts[-1]] if value else []
        elif value is not None:
            for each in value if option.multiple else [value]:
                arguments += [option.opts[-1], str(each)]
    return arguments
