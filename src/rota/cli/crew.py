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

from rota.cli.endings import FAILED, NO_DATABASE, OK
from rota.cli.lifeline import DRAINED, UP

log = logging.getLogger("rota")

FIRST_REST = 0.2
LONGEST_REST = 30.0
REST_WITHOUT_DATABASE = 3.0
STEADY = 10.0
"""Seconds after which a process counts as having worked."""

TOO_OFTEN = 5
"""Processes in a row, one in the place of the other, that do not come up: then it all ends."""

STOPPED = {OK, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT}
"""How a child may end that was told to stop, be it before it could do so by itself."""


class Child:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process, ours: socket.socket) -> None:
        self._process = process
        self._socket = ours
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
        errors: int | None = None,
    ) -> Child:
        """`errors`: the file that what it says goes to; None: where this process says things."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command,
                "--lifeline",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                pass_fds=(theirs.fileno(), *descriptors),
                process_group=0,
            )
        return cls(process, ours)

    async def settled(self) -> bool:
        """Wait until it is up, or has ended. Is it up?"""
        if self.is_up:
            return True
        with suppress(ConnectionError):
            self.is_up = await asyncio.get_running_loop().sock_recv(self._socket, 1) == UP
        return self.is_up

    async def ended(self) -> int:
        """Its exit code; a signal that ended it is negative."""
        with self._socket:
            code = await self._process.wait()
            with suppress(OSError):
                self.was_drained = code == OK and DRAINED in self._socket.recv(2)
            return code

    @property
    def is_steady(self) -> bool:
        return time.monotonic() - self._began >= STEADY

    def tell(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


class Crew:
    """`what` its processes are called; `sockets`: what all of them accept from, until it is to end."""

    def __init__(
        self,
        command: Sequence[str],
        size: int,
        what: str = "worker process",
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        self._command = command
        self._size = size
        self._what = what
        self._sockets = sockets
        self._children: set[Child] = set()
        self._stopping = asyncio.Event()
        self._told = 0
        self._code = OK

    async def run(self) -> int:
        """Work until told to stop. Answers an exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number)
        first = await self._start()
        if not await first.settled() and not self._stopping.is_set():
            code = await first.ended()
            return code if code > 0 else FAILED
        await asyncio.gather(self._keep(first), *(self._keep() for _ in range(1, self._size)))
        return self._code

    def stop(self, number: signal.Signals) -> None:
        """Pass a signal on. The first drains, the second hurries, a third does not wait any more."""
        self._told += 1
        self._stopping.set()
        if self._told == 1:
            log.info("stopping %s %ses; once more to hurry them", len(self._children), self._what)
            # Or they stay open when all who accept from them have stopped, and whoever connects waits.
            for each in self._sockets:
                each.close()
        for child in self._children:
            child.tell(number if self._told < 3 else signal.SIGKILL)

    async def _start(self) -> Child:
        child = await Child.start(self._command, [each.fileno() for each in self._sockets])
        self._children.add(child)
        if self._stopping.is_set():
            child.tell(signal.SIGTERM)
        return child

    async def _keep(self, child: Child | None = None) -> None:
        """Keep one place filled."""
        deaths = unborn = 0
        while not self._stopping.is_set():
            child = child or await self._start()
            await child.settled()
            code = await child.ended()
            self._children.discard(child)
            if self._stopping.is_set():
                break
            if child.was_drained:
                log.info("%s %s was drained and has left its place", self._what, child.pid)
                return
            if child.is_steady:
                deaths = 0
            # Nothing is wrong with a process that could not reach the database: it comes back.
            waits = code == NO_DATABASE and not child.is_up
            deaths += not waits
            # One that came up may have died of its jobs, and those do not kill for ever.
            unborn = 0 if child.is_up else unborn + (not waits)
            if unborn >= TOO_OFTEN:
                log.error(
                    "%s %s %s before it was up, the %sth in a row; giving up, see what it said above",
                    self._what,
                    child.pid,
                    how(code),
                    unborn,
                )
                self._code = FAILED
                self.stop(signal.SIGTERM)
                return
            rest = REST_WITHOUT_DATABASE if waits else rest_after(deaths)
            log.warning(
                "%s %s %s unexpectedly; another starts in %.1f s",
                self._what,
                child.pid,
                how(code),
                rest,
            )
            child = None
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._stopping.wait()
        if child is not None:
            await self._leave(child)

    async def _leave(self, child: Child) -> None:
        code = await child.ended()
        self._children.discard(child)
        if code not in STOPPED:
            log.warning("%s %s %s while stopping", self._what, child.pid, how(code))
            self._code = FAILED


def rest_after(deaths: int) -> float:
    """Seconds until the next one starts, after so many that died soon."""
    return min(FIRST_REST * 2.0 ** min(deaths - 1, 16), LONGEST_REST)


def how(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def command(words: Sequence[str]) -> list[str]:
    """The command line of one worker process."""
    return [sys.executable, "-m", "rota", *words]
