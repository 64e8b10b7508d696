"""A process that runs isolated tasks, seen from inside: `python -m rota.engine.child FD PARENT`.

The main thread runs one job after the other. Another thread hears what the worker says meanwhile. The
process ends when the worker does: by the kernel's hand where that can be had (then even code that never
comes back to Python is ended), and when the worker's end of the socket closes.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rota import logs
from rota.engine.address import find, name_of
from rota.engine.childport import ChildPort
from rota.engine.execute import NOTHING, UNSTARTED, context_of, done, judge
from rota.engine.frames import (
    Address,
    Began,
    Begin,
    FromProcess,
    FromWorker,
    Over,
    Reply,
    Setup,
    Tell,
    Unpacker,
    pack,
)
from rota.engine.otel import continue_at
from rota.model import at_work
from rota.model.context import Context
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.task import Definition, Policy


class Attempt:
    """What runs, and what it has been told."""

    def __init__(self, begin: Begin, port: ChildPort) -> None:
        self.begin = begin
        self.port = port
        self.task: asyncio.Task[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.is_told = False
        self.context: Context | None = None

    def tell(self, told: Tell) -> None:
        """In the thread that hears."""
        if told.draining:
            self.port.draining = True
        if told.cancelled:
            self.is_told = True
            if self.context is not None:
                self.context.cancel()
            if self.task is not None and self.loop is not None:
                self.loop.call_soon_threadsafe(self.task.cancel)


class Raised:
    """Async code's error, without our own frame."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.trace = error.__traceback__ and error.__traceback__.tb_next


class Process:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._jobs: SimpleQueue[Attempt | None] = SimpleQueue()
        self._changing = threading.Lock()
        self._attempts: dict[int, Attempt] = {}
        self._tasks: dict[tuple[Address, str], Definition] = {}

    def send(self, message: FromProcess) -> None:
        with self._sending:
            self._connection.sendall(pack(message))

    # Hearing, in a thread of its own

    def hear(self) -> None:
        frames: Unpacker[FromWorker] = Unpacker(FromWorker)
        with suppress(OSError, ValueError):
            while data := self._connection.recv(65536):
                for message in frames.feed(data):
                    self._hear(message)
        if self._attempts:
            os._exit(1)  # nobody would hear what comes of it
        self._jobs.put(None)

    def _hear(self, message: FromWorker) -> None:
        match message:
            case Setup(path, arguments):
                sys.path[:] = path
                sys.argv[:] = arguments
                if message.logs is not None:
                    logs.to_stderr(message.logs.level, message.logs.format)
            case Begin(number):
                port = ChildPort(number, self.send)
                port.draining = message.draining
                self._attempts[number] = attempt = Attempt(message, port)
                self._jobs.put(attempt)
            case Tell(number):
                with self._changing:
                    if (told := self._attempts.get(number)) is not None:
                        told.tell(message)
            case Reply():
                for each in list(self._attempts.values()):
                    each.port.hear(message)

    # Running, in the main thread

    def run(self) -> None:
        with asyncio.Runner() as runner:  # one loop for all, as in a worker
            while (attempt := self._jobs.get()) is not None:
                outcome, took = copy_context().run(self._attempt, attempt, runner)
                for stream in (sys.stdout, sys.stderr):
                    with suppress(Exception):
                        stream.flush()
                number = attempt.begin.number
                with self._changing:
                    del self._attempts[number]
                self.send(Over.of(number, outcome, took))

    def _attempt(self, attempt: Attempt, runner: asyncio.Runner) -> tuple[Outcome, float]:
        begin = attempt.begin
        at_work.work.set(begin.job)
        at_work.worker.set(begin.worker)
        if begin.job.span is not None:
            continue_at(begin.job.span)
        began = time.perf_counter()
        outcome: Outcome
        try:
            task = self._task(begin)
            arguments = task.arguments.decode(begin.job.args)
            context = context_of(begin.job, task, lambda _: attempt.port)
            with self._changing:
                attempt.context = context
            if attempt.is_told:
                return UNSTARTED, 0.0
            self.send(Began(begin.number))
            began = time.perf_counter()
            call = partial(task.fn, *([context] if task.takes_context else []), **arguments)
            if task.is_async:
                value = runner.run(self._awaited(attempt, call), context=copy_context())
                if isinstance(value, Raised):
                    raise value.error.with_traceback(value.trace)
            else:
                value = copy_context().run(call)
            outcome = NOTHING if value is None else done(value, task, begin.limit)
        except BaseException as error:
            retry = _retry(begin, error)
            if isinstance(error, asyncio.CancelledError) and attempt.is_told:
                outcome = UNSTARTED
            else:
                outcome = judge(error, begin.job, retry, attempt.context)
        return outcome, time.perf_counter() - began

    async def _awaited(self, attempt: Attempt, call: Callable[[], Awaitable[Any]]) -> Any:
        with self._changing:
            attempt.loop = asyncio.get_running_loop()
            attempt.task = asyncio.current_task()
        try:
            if attempt.is_told:
                raise asyncio.CancelledError
            return await call()
        except BaseException as error:
            # Some errors would tear the loop down, and all would bring its frames along.
            return Raised(error)

    def _task(self, begin: Begin) -> Definition:
        key = (begin.address, begin.task)
        if key not in self._tasks:
            self._tasks[key] = Definition(find(begin.address), begin.task, Policy())
        return self._tasks[key]


def _retry(begin: Begin, error: BaseException) -> Retry:
    """The rules for this error: of the types it has, those that are never tried again."""
    never = tuple(kind for kind in type(error).__mro__ if name_of(kind) in begin.never)
    return Retry(**begin.retry, never=never)


def main() -> None:
    descriptor, parent = map(int, sys.argv[1:])
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    connection.setblocking(True)
    _end_with(parent)
    _be_the_first_to_go()
    # The worker decides. Not ignored, but heard and let be: what a task starts would inherit the former.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with suppress(Exception):
        faulthandler.enable()
    process = Process(connection)
    threading.Thread(target=process.hear, name="rota worker", daemon=True).start()
    with connection, suppress(BrokenPipeError, ConnectionResetError):
        process.run()


def _end_with(parent: int) -> None:
    """Let the kernel end this process with its parent."""
    if sys.platform == "linux":
        import ctypes

        set_death_signal = 1
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it went first


def _be_the_first_to_go() -> None:
    """Where memory runs out, this is what is to be ended, not the worker."""
    with suppress(OSError, ValueError):
        file = Path("/proc/self/oom_score_adj")
        file.write_text(str(min(int(file.read_text()) + 500, 1000)))


if __name__ == "__main__":
    main()
