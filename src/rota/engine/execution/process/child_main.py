"""Program of a child process: `python -m rota.engine.execution.process.child_main FD PARENT`.

The main thread runs one job after the other. A second thread receives the worker's messages. The process
ends with the worker: on Linux the kernel kills it, even inside code that never returns to Python, and
everywhere it ends when the worker's side of the socket closes.
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
from rota.engine.execution.executor import (
    NO_RESULT,
    RETURNED,
    build_context,
    outcome_of_error,
    success,
)
from rota.engine.execution.process.child_backend import ChildBackend
from rota.engine.execution.process.messages import (
    AttemptBegan,
    AttemptEnded,
    BeginAttempt,
    ChildSetup,
    FromProcess,
    FromWorker,
    MessageReader,
    Notice,
    Reply,
    TaskAddress,
    encode,
)
from rota.engine.execution.process.task_address import load_function, type_name
from rota.engine.telemetry.otel import continue_trace
from rota.model import current_job
from rota.model.context import Context
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.task import TaskDefinition, TaskPolicy


class ChildAttempt:
    """Attempt in this process, with the notices received for it."""

    def __init__(self, begin: BeginAttempt, backend: ChildBackend) -> None:
        self.begin = begin
        self.backend = backend
        self.task: asyncio.Task[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stop_requested = False
        self.context: Context | None = None

    def on_notice(self, notice: Notice) -> None:
        """Pass a notice to the context and the code. Runs in the receiving thread."""
        if notice.draining:
            self.backend.draining = True
        if notice.cancelled:
            self.stop_requested = True
            if self.context is not None:
                self.context.cancel()
            if self.task is not None and self.loop is not None:
                self.loop.call_soon_threadsafe(self.task.cancel)


class TaskRaised:
    """Error raised by async code, and its traceback without Rota's frame."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.traceback = error.__traceback__ and error.__traceback__.tb_next


class ChildRuntime:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._send_lock = threading.Lock()
        self._attempt_queue: SimpleQueue[ChildAttempt | None] = SimpleQueue()
        self._attempts_lock = threading.Lock()
        self._attempts: dict[int, ChildAttempt] = {}
        self._tasks: dict[tuple[TaskAddress, str], TaskDefinition] = {}

    def send(self, message: FromProcess) -> None:
        with self._send_lock:
            self._connection.sendall(encode(message))

    # In the receiving thread

    def receive_messages(self) -> None:
        reader: MessageReader[FromWorker] = MessageReader(FromWorker)
        with suppress(OSError, ValueError):
            while data := self._connection.recv(65536):
                for message in reader.feed(data):
                    self._on_message(message)
        if self._attempts:
            os._exit(1)  # the worker is gone, so the outcome could not be sent
        self._attempt_queue.put(None)

    def _on_message(self, message: FromWorker) -> None:
        match message:
            case ChildSetup(path, arguments):
                sys.path[:] = path
                sys.argv[:] = arguments
                if message.logs is not None:
                    logs.to_stderr(message.logs.level, message.logs.format)
            case BeginAttempt(attempt_id):
                backend = ChildBackend(attempt_id, self.send)
                backend.draining = message.draining
                self._attempts[attempt_id] = attempt = ChildAttempt(message, backend)
                self._attempt_queue.put(attempt)
            case Notice(attempt_id):
                with self._attempts_lock:
                    if (running := self._attempts.get(attempt_id)) is not None:
                        running.on_notice(message)
            case Reply():
                for each in list(self._attempts.values()):
                    each.backend.on_reply(message)

    # In the main thread

    def run(self) -> None:
        with asyncio.Runner() as runner:  # one event loop for all jobs, as in a worker
            while (attempt := self._attempt_queue.get()) is not None:
                outcome, seconds = copy_context().run(self._run_attempt, attempt, runner)
                for stream in (sys.stdout, sys.stderr):
                    with suppress(Exception):
                        stream.flush()
                attempt_id = attempt.begin.attempt_id
                with self._attempts_lock:
                    del self._attempts[attempt_id]
                self.send(AttemptEnded.from_outcome(attempt_id, outcome, seconds))

    def _run_attempt(self, attempt: ChildAttempt, runner: asyncio.Runner) -> tuple[Outcome, float]:
        begin = attempt.begin
        current_job.job.set(begin.job)
        current_job.worker.set(begin.worker)
        if begin.job.span is not None:
            continue_trace(begin.job.span)
        began = time.perf_counter()
        outcome: Outcome
        try:
            task = self._load_task(begin)
            arguments = task.arguments_decoder.decode(begin.job.args)
            context = build_context(begin.job, task, lambda _: attempt.backend)
            with self._attempts_lock:
                attempt.context = context
            if attempt.stop_requested:
                return RETURNED, 0.0
            self.send(AttemptBegan(begin.attempt_id))
            began = time.perf_counter()
            call = partial(task.fn, *([context] if task.takes_context else []), **arguments)
            if task.is_async:
                value = runner.run(self._run_async(attempt, call), context=copy_context())
                if isinstance(value, TaskRaised):
                    raise value.error.with_traceback(value.traceback)
            else:
                value = copy_context().run(call)
            outcome = NO_RESULT if value is None else success(value, task, begin.payload_limit)
        except BaseException as error:
            retry = _retry_policy(begin, error)
            if isinstance(error, asyncio.CancelledError) and attempt.stop_requested:
                outcome = RETURNED
            else:
                outcome = outcome_of_error(error, begin.job, retry, attempt.context)
        return outcome, time.perf_counter() - began

    async def _run_async(self, attempt: ChildAttempt, call: Callable[[], Awaitable[Any]]) -> Any:
        with self._attempts_lock:
            attempt.loop = asyncio.get_running_loop()
            attempt.task = asyncio.current_task()
        try:
            if attempt.stop_requested:
                raise asyncio.CancelledError
            return await call()
        except BaseException as error:
            # Raised through the runner, some errors would close the loop, and all would add its frames.
            return TaskRaised(error)

    def _load_task(self, begin: BeginAttempt) -> TaskDefinition:
        key = (begin.address, begin.task)
        if key not in self._tasks:
            self._tasks[key] = TaskDefinition(
                load_function(begin.address), begin.task, TaskPolicy()
            )
        return self._tasks[key]


def _retry_policy(begin: BeginAttempt, error: BaseException) -> Retry:
    """Return the retry rules with those types of the error that are not retryable.

    The worker sends non-retryable types by name: messages carry data, never code.
    """
    non_retryable = tuple(
        kind for kind in type(error).__mro__ if type_name(kind) in begin.non_retryable
    )
    return Retry(**begin.retry, non_retryable=non_retryable)


def main() -> None:
    descriptor, parent_pid = map(int, sys.argv[1:])
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    connection.setblocking(True)
    _exit_with_parent(parent_pid)
    _raise_oom_score()
    # The worker decides about stopping. An empty handler instead of SIG_IGN: processes that a task starts
    # would inherit SIG_IGN.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: None)
    with suppress(Exception):
        faulthandler.enable()
    runtime = ChildRuntime(connection)
    threading.Thread(target=runtime.receive_messages, name="rota worker", daemon=True).start()
    with connection, suppress(BrokenPipeError, ConnectionResetError):
        runtime.run()


def _exit_with_parent(parent_pid: int) -> None:
    """Make the kernel kill this process when its parent ends (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        set_death_signal = 1
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)  # the parent has already ended


def _raise_oom_score() -> None:
    """Raise the OOM score: if memory runs out, the kernel kills this process and not the worker."""
    with suppress(OSError, ValueError):
        file = Path("/proc/self/oom_score_adj")
        file.write_text(str(min(int(file.read_text()) + 500, 1000)))


if __name__ == "__main__":
    main()
