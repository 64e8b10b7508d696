"""Executor for isolated tasks, in child processes: a crash of the code does not harm the worker.

A process is started on demand, runs many jobs one after the other, and ends after IDLE_SECONDS without one.

    the process dies         the attempt fails
    the timeout passes       the process is killed at once
    the job is to stop       the code gets STOP_GRACE_SECONDS, then the process is killed
    all processes are busy   the job returns to the queue after PROCESS_WAIT_SECONDS: another worker may
                             have a free process
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import Context as Surroundings
from dataclasses import dataclass
from itertools import count

import msgspec

from rota.engine.execution.executor import (
    DISCARDED,
    RETURNED,
    SKIPPED,
    BackendFactory,
    OnFinished,
    StopReason,
    outcome_of_error,
    outcome_of_stop,
    should_skip,
    timeout_error,
)
from rota.engine.execution.process.child_backend import REPLY_TYPES
from rota.engine.execution.process.child_process import STOP_GRACE_SECONDS, ChildProcess
from rota.engine.execution.process.messages import (
    AttemptBegan,
    AttemptEnded,
    BeginAttempt,
    FromProcess,
    Notice,
    Reply,
    Request,
    TaskAddress,
)
from rota.engine.execution.process.task_address import import_path_of, type_name
from rota.errors import ProcessLost
from rota.model.context import ContextBackend
from rota.model.outcome import TIMEOUT_MARGIN_SECONDS, Outcome, Succeeded
from rota.model.retry import Retry
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

log = logging.getLogger("rota")

IDLE_SECONDS = 60.0
PROCESS_WAIT_SECONDS = 1.0
"""Time that a job waits for a process before it returns to the queue."""

BEGIN_TIMEOUT_SECONDS = 120.0
"""Time that a process has to start and to import the task's modules."""


@dataclass(eq=False, slots=True)
class ProcessAttempt:
    """Attempt of an isolated task, from its start to its outcome."""

    id: int
    job: ClaimedJob
    task: TaskDefinition
    address: TaskAddress
    retry: Retry
    timeout: float | None
    began: float
    child: ChildProcess | None = None
    has_begun: bool = False
    stop_reason: StopReason | None = None
    error: BaseException | None = None
    """Error of the attempt if its process was killed for it, for example a timeout."""
    timer: asyncio.TimerHandle | None = None
    """Deadline for the current phase: get a process, begin, end."""
    stop_timer: asyncio.TimerHandle | None = None
    """Deadline after a stop request, when the process is killed; then until the attempt is abandoned."""
    backend: ContextBackend | None = None

    def cancel_timers(self) -> None:
        for timer in (self.timer, self.stop_timer):
            if timer is not None:
                timer.cancel()
        self.timer = self.stop_timer = None


class ProcessExecutor:
    def __init__(
        self,
        on_finished: OnFinished,
        payload_limit: int,
        backend_for: BackendFactory | None = None,
        max_processes: int = 0,
        worker: int | None = None,
    ) -> None:
        self._on_finished = on_finished
        self._payload_limit = payload_limit
        self._backend_for = backend_for
        self._max_processes = max_processes or _cpu_count()
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._attempt_ids = count()
        self._attempts: dict[ClaimedJob, ProcessAttempt] = {}
        self._waiting: deque[ProcessAttempt] = deque()
        self._children: dict[ChildProcess, ProcessAttempt | None] = {}
        self._idle_timers: dict[ChildProcess, asyncio.TimerHandle] = {}
        self._request_tasks: set[asyncio.Task[None]] = set()
        self._addresses: dict[TaskDefinition, TaskAddress] = {}
        self._is_draining = self._is_closed = False

    def address_for(self, task: TaskDefinition) -> TaskAddress:
        """Return the address of a task. Raise DefinitionError if a process could not import it."""
        if task not in self._addresses:
            self._addresses[task] = import_path_of(task)
        return self._addresses[task]

    # Start

    def start(
        self,
        job: ClaimedJob,
        task: TaskDefinition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        # `context` is not used: the child process takes the span of the attempt from the job.
        attempt = ProcessAttempt(
            next(self._attempt_ids),
            job,
            task,
            self.address_for(task),
            retry,
            timeout,
            time.perf_counter(),
        )
        self._attempts[job] = attempt
        try:
            if task.skip_if is not None and should_skip(job, task.skip_if):
                self._loop.call_soon(self._finish, attempt, SKIPPED)
                return
        except Exception as error:
            self._loop.call_soon(self._finish, attempt, outcome_of_error(error, job, retry))
            return
        self._waiting.append(attempt)
        attempt.timer = self._loop.call_later(PROCESS_WAIT_SECONDS, self._return_waiting, attempt)
        self._assign_waiting()

    def _assign_waiting(self) -> None:
        """Assign waiting attempts to idle or new processes, as long as there are any."""
        while self._waiting and not self._is_closed:
            child = self._acquire_child()
            if child is None:
                return
            attempt = self._waiting.popleft()
            self._children[child] = attempt
            attempt.child = child
            attempt.cancel_timers()
            attempt.timer = self._loop.call_later(
                BEGIN_TIMEOUT_SECONDS, self._on_begin_timeout, attempt
            )
            child.send(
                BeginAttempt(
                    attempt.id,
                    attempt.job,
                    attempt.task.name,
                    attempt.address,
                    attempt.retry.to_dict(),
                    [type_name(kind) for kind in attempt.retry.non_retryable],
                    self._payload_limit,
                    self._is_draining,
                    self._worker,
                )
            )

    def _acquire_child(self) -> ChildProcess | None:
        if self._idle_timers:
            child, timer = (
                self._idle_timers.popitem()
            )  # the most recently used one, so that surplus processes reach IDLE_SECONDS
            timer.cancel()
            return child
        if len(self._children) >= self._max_processes:
            return None
        try:
            child = ChildProcess(self._on_message, self._on_child_exit)
        except OSError as error:
            log.warning("no process for isolated tasks could be started: %s", error)
            return None
        self._children[child] = None
        return child

    def _on_message(self, child: ChildProcess, message: FromProcess) -> None:
        attempt = self._children.get(child)
        if attempt is None or attempt.id != message.attempt_id or self._is_closed:
            return
        match message:
            case AttemptBegan():
                attempt.has_begun = True
                if attempt.timer is not None:
                    attempt.timer.cancel()
                attempt.began = time.perf_counter()
                if attempt.timeout is not None:
                    attempt.timer = self._loop.call_later(
                        attempt.timeout, self._kill, attempt, timeout_error(attempt.timeout)
                    )
            case AttemptEnded():
                child.served_jobs += 1
                self._children[child] = None
                self._mark_idle(child)
                self._finish(attempt, message.outcome, message.seconds)
            case Request():
                handling = self._loop.create_task(self._handle_request(child, attempt, message))
                self._request_tasks.add(handling)
                handling.add_done_callback(self._request_tasks.discard)

    async def _handle_request(
        self, child: ChildProcess, attempt: ProcessAttempt, request: Request
    ) -> None:
        try:
            if request.method not in REPLY_TYPES or self._backend_for is None:
                raise RuntimeError(f"a process cannot ask for {request.method!r} here")
            if attempt.backend is None:
                attempt.backend = self._backend_for(attempt.job)
            answer = getattr(attempt.backend, request.method)(
                *msgspec.json.decode(request.arguments)
            )
            if isinstance(answer, Awaitable):
                answer = await answer
            reply = Reply(request.request_id, msgspec.json.encode(answer))
        except Exception as error:
            reply = Reply(request.request_id, b"", str(error), type(error).__name__)
        if self._children.get(child) is attempt:
            child.send(reply)

    # End

    def _finish(
        self, attempt: ProcessAttempt, outcome: Outcome, seconds: float | None = None
    ) -> None:
        attempt.cancel_timers()
        if self._attempts.pop(attempt.job, None) is None:
            return
        if attempt.stop_reason is StopReason.CLAIM_LOST:
            outcome = DISCARDED
        elif attempt.stop_reason is not None and not isinstance(outcome, Succeeded):
            outcome = outcome_of_stop(attempt.stop_reason)
        if seconds is None:
            seconds = time.perf_counter() - attempt.began
        self._on_finished(attempt.job, outcome, seconds)
        self._assign_waiting()

    def _mark_idle(self, child: ChildProcess) -> None:
        if child.is_reusable and not self._is_closed:
            self._idle_timers[child] = self._loop.call_later(IDLE_SECONDS, self._stop_idle, child)

    def _stop_idle(self, child: ChildProcess) -> None:
        self._idle_timers.pop(child).cancel()
        child.stop()

    def _on_child_exit(self, child: ChildProcess) -> None:
        """Finish the attempt of a process that has exited, or assign it to another process."""
        attempt = self._children.pop(child)
        if (timer := self._idle_timers.pop(child, None)) is not None:
            timer.cancel()
        if attempt is not None and attempt.job in self._attempts:
            if (
                attempt.stop_reason is None
                and attempt.error is None
                and self._may_reassign(attempt)
            ):
                # The process died idle, just before it received this attempt: use another process.
                attempt.child = None
                attempt.cancel_timers()
                attempt.timer = self._loop.call_later(
                    PROCESS_WAIT_SECONDS, self._return_waiting, attempt
                )
                self._waiting.appendleft(attempt)
            else:
                error = attempt.error or _process_lost_error(child, attempt)
                self._finish(attempt, outcome_of_error(error, attempt.job, attempt.retry))
        self._assign_waiting()

    @staticmethod
    def _may_reassign(attempt: ProcessAttempt) -> bool:
        """True if the process had served other jobs and died before it began this attempt."""
        child = attempt.child
        return child is not None and child.served_jobs > 0 and not attempt.has_begun

    # Deadlines and stopping

    def _return_waiting(self, attempt: ProcessAttempt) -> None:
        self._waiting.remove(attempt)
        self._finish(attempt, RETURNED, 0.0)

    def _on_begin_timeout(self, attempt: ProcessAttempt) -> None:
        reason = f"its process was not ready to run it within {BEGIN_TIMEOUT_SECONDS:g} s"
        self._kill(attempt, ProcessLost(f"{reason}; check that its imports do not hang"))

    def _kill(self, attempt: ProcessAttempt, error: BaseException | None) -> None:
        assert attempt.child is not None
        attempt.error = error
        attempt.cancel_timers()
        attempt.stop_timer = self._loop.call_later(TIMEOUT_MARGIN_SECONDS, self._abandon, attempt)
        attempt.child.kill()

    def _abandon(self, attempt: ProcessAttempt) -> None:
        """Fail the attempt of a process that was killed but does not exit."""
        assert attempt.child is not None
        pid = attempt.child.pid
        log.warning(
            "process %s does not end; the attempt of job %s is abandoned", pid, attempt.job.job
        )
        error = attempt.error or ProcessLost(f"its process {pid} was killed and does not end")
        self._finish(attempt, outcome_of_error(error, attempt.job, attempt.retry))

    def stop(self, job: ClaimedJob, reason: StopReason) -> None:
        attempt = self._attempts.get(job)
        if attempt is None:
            return
        attempt.stop_reason = reason
        if attempt.child is None:
            with suppress(ValueError):
                self._waiting.remove(attempt)
            attempt.cancel_timers()
            self._loop.call_soon(self._finish, attempt, RETURNED, 0.0)
            return
        attempt.child.send(Notice(attempt.id, True, reason is StopReason.DRAINED))
        if attempt.stop_timer is None:
            attempt.stop_timer = self._loop.call_later(
                STOP_GRACE_SECONDS, self._kill, attempt, None
            )

    def drain(self) -> None:
        """Set `ctx.draining` in all processes."""
        self._is_draining = True
        for child, attempt in self._children.items():
            if attempt is not None:
                child.send(Notice(attempt.id, False, True))

    def close(self) -> None:
        """End all processes without reporting outcomes. `wait_closed` waits for their exit."""
        self._is_closed = True
        for attempt in self._attempts.values():
            attempt.cancel_timers()
        self._attempts.clear()
        self._waiting.clear()
        for timer in self._idle_timers.values():
            timer.cancel()
        self._idle_timers.clear()
        for child, busy in self._children.items():
            if busy is None:
                child.stop()
            else:
                child.kill()

    async def wait_closed(self) -> None:
        for handling in self._request_tasks:
            handling.cancel()
        try:
            if self._children:
                await asyncio.wait(
                    [child.exited for child in self._children], timeout=TIMEOUT_MARGIN_SECONDS
                )
        finally:
            # Also if this wait is cancelled: no process outlives the worker or stays a zombie.
            for child in list(self._children):
                child.kill_and_reap()


def _cpu_count() -> int:
    """Return the number of CPUs that this process may use, or of all CPUs if that is unknown."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _process_lost_error(child: ChildProcess, attempt: ProcessAttempt) -> ProcessLost:
    when = "" if attempt.has_begun else " before it began"
    hint = ""
    if child.exit_code == -signal.SIGKILL:
        hint = ": it was killed, possibly by the system for lack of memory"
    return ProcessLost(f"the process it ran in {_describe_exit(child.exit_code)}{when}{hint}")


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
