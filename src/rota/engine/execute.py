"""One claimed job → an outcome.

How code is run is an interface: coroutines on the loop, plain functions in threads. Whatever the code
does, what comes out is an `Outcome`, handed to `finished` in the worker's loop.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from enum import Enum
from typing import Any, Protocol

import msgspec

from rota.errors import ArgumentError
from rota.model import codec
from rota.model.context import Context, Port
from rota.model.outcome import Again, Done, Ended, Outcome, Unstarted
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

Finished = Callable[[Claimed, Outcome, float], None]

Ports = Callable[[Claimed], Port]

NOTHING = Done(None)
UNSTARTED = Unstarted()
SKIPPED = Ended("skipped", None)

MOST_THREADS = 10_000


class Stop(Enum):
    """Why a running job is told to stop."""

    CANCELLED = "cancelled"
    DRAINED = "drained"


class Executor(Protocol):
    """Runs jobs of one kind."""

    def start(
        self, job: Claimed, task: Definition, retry: Retry, timeout: float | None
    ) -> None: ...

    def stop(self, job: int, why: Stop) -> None:
        """Ask a job to stop; it may take its time, and it may not listen."""

    def close(self) -> None: ...


class Timeout(Exception):
    """An attempt took longer than the task's timeout."""


class LoopExecutor:
    """Coroutines, on the worker's own event loop."""

    def __init__(self, finished: Finished, payload_limit: int, ports: Ports | None = None) -> None:
        self._finished = finished
        self._limit = payload_limit
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        # Strong references: the loop itself keeps only weak ones.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._why: dict[int, Stop] = {}

    def start(self, job: Claimed, task: Definition, retry: Retry, timeout: float | None) -> None:
        self._tasks[job.job] = self._loop.create_task(self._attempt(job, task, retry, timeout))

    async def _attempt(
        self, job: Claimed, task: Definition, retry: Retry, timeout: float | None
    ) -> None:
        began = time.perf_counter()
        outcome: Outcome
        try:
            if self._why and job.job in self._why:
                raise asyncio.CancelledError  # told to stop before it began
            arguments = task.arguments.decode(job.args)
            if task.skip_if is not None and _is_to_be_skipped(job, task.skip_if):
                outcome = SKIPPED
            else:
                call = (
                    task.fn(_context(job, task, self._ports), **arguments)
                    if task.takes_context
                    else (task.fn(**arguments))
                )
                if timeout is None:
                    value = await call
                else:
                    value = await _within(timeout, call)
                outcome = NOTHING if value is None else _done(value, task, self._limit)
        except asyncio.CancelledError as error:
            why = self._why.pop(job.job, None)
            outcome = judge(error, job, retry) if why is None else _stopped(why)
        except (Exception, SystemExit) as error:
            outcome = judge(error, job, retry)
        self._why.pop(job.job, None)
        del self._tasks[job.job]
        self._finished(job, outcome, time.perf_counter() - began)

    def stop(self, job: int, why: Stop) -> None:
        task = self._tasks.get(job)
        if task is not None:
            self._why[job] = why
            # A coroutine cancelled before its first step would never get to say so.
            coroutine = task.get_coro()
            assert inspect.iscoroutine(coroutine)
            if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
                task.cancel()

    def close(self) -> None:
        pass


class ThreadExecutor:
    """Plain functions, in threads. A thread cannot be stopped from outside: it is told, through its
    context, and its place is taken until it ends."""

    def __init__(self, finished: Finished, payload_limit: int, ports: Ports | None = None) -> None:
        self._finished = finished
        self._limit = payload_limit
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        # The desk knows how many may run. A thread whose job only waits for others takes none of its
        # places, so there may be more; one is made only when no other is idle.
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="rota")
        self._contexts: dict[int, Context] = {}
        self._why: dict[int, Stop] = {}

    def start(self, job: Claimed, task: Definition, retry: Retry, timeout: float | None) -> None:
        context = _context(job, task, self._ports)
        self._contexts[job.job] = context
        # Each job sees the variables of the worker's start, and none that another job has set.
        self._threads.submit(copy_context().run, self._attempt, context, job, task, retry, timeout)

    def _attempt(
        self, context: Context, job: Claimed, task: Definition, retry: Retry, timeout: float | None
    ) -> None:
        began = time.perf_counter()
        outcome: Outcome
        try:
            arguments = task.arguments.decode(job.args)
            if task.skip_if is not None and _is_to_be_skipped(job, task.skip_if):
                outcome = SKIPPED
            else:
                value = (
                    task.fn(context, **arguments) if task.takes_context else task.fn(**arguments)
                )
                took = time.perf_counter() - began
                if timeout is not None and took > timeout:
                    raise Timeout(f"it took {took:.1f} s, longer than its timeout of {timeout:g} s")
                outcome = NOTHING if value is None else _done(value, task, self._limit)
        except BaseException as error:
            if context.cancelled and job.job in self._why:
                outcome = _stopped(self._why[job.job])
            else:
                outcome = judge(error, job, retry)
        took = time.perf_counter() - began
        try:
            self._loop.call_soon_threadsafe(self._ended, job, outcome, took)
        except RuntimeError:
            # The loop is gone: the worker gave up waiting for this thread, and gave the job back.
            return

    def _ended(self, job: Claimed, outcome: Outcome, took: float) -> None:
        self._why.pop(job.job, None)
        self._contexts.pop(job.job, None)
        self._finished(job, outcome, took)

    def stop(self, job: int, why: Stop) -> None:
        context = self._contexts.get(job)
        if context is not None:
            self._why[job] = why
            context.cancel()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def judge(error: BaseException, job: Claimed, retry: Retry) -> Outcome:
    """What a failed attempt comes to: another one later, or the end. Never raises: an error that cannot
    be judged is recorded as one that could not."""
    try:
        return _judge(error, job, retry)
    except Exception as trouble:
        return Ended("failed", codec.error_document(trouble, job.attempt, ""))


def _judge(error: BaseException, job: Claimed, retry: Retry) -> Outcome:
    trace = error.__traceback__
    text = "".join(
        # The first frame is ours and says nothing about the user's code.
        traceback.format_exception(type(error), error, trace.tb_next if trace else None)
    )
    document = codec.error_document(error, job.attempt, text)
    delay = None if isinstance(error, Unstorable) else retry.after(job.attempt, error)
    return Ended("failed", document) if delay is None else Again(delay, document)


class Unstorable(Exception):
    """The code ran, but what it returned cannot be stored; running it again would not help."""


async def _within(timeout: float, call: Any) -> Any:
    try:
        async with asyncio.timeout(timeout) as scope:
            return await call
    except TimeoutError:
        if not scope.expired():
            raise  # the user's own
        raise Timeout(f"it took longer than its timeout of {timeout:g} s") from None


def _done(value: Any, task: Definition, limit: int) -> Done:
    try:
        return Done(codec.encode(value, f"what task {task.name!r} returned", limit))
    except ArgumentError as error:
        raise Unstorable(str(error)) from None


def _stopped(why: Stop) -> Outcome:
    match why:
        case Stop.CANCELLED:
            return Ended("cancelled", None)
        case Stop.DRAINED:
            return UNSTARTED


def _is_to_be_skipped(job: Claimed, condition: Definition) -> bool:
    return bool(condition.fn(**condition.arguments.decode(job.args)))


def _context(job: Claimed, task: Definition, ports: Ports | None) -> Context:
    run = job.job if job.run is None else job.run
    port = ports(job) if ports is not None else None
    return Context(job.job, run, task.name, job.queue, job.attempt, port)


class _Options(msgspec.Struct):
    retry: dict[str, Any] | None = None
    timeout: float | None = None


_options = msgspec.json.Decoder(_Options)


def policy_of(job: Claimed, task: Definition) -> tuple[Retry, float | None]:
    """The task's policy, with what this job's start said instead."""
    if job.options is None:
        return task.policy.retry, task.policy.timeout
    own = _options.decode(job.options)
    retry = task.policy.retry
    if own.retry is not None:
        retry = Retry(**own.retry, never=retry.never)
    return retry, task.policy.timeout if own.timeout is None else own.timeout
