"""Plain functions, in threads.

A thread cannot be stopped from outside: it is told, through its context, and its place is taken until it
ends. At its deadline it is told as well; one that runs on is given up a margin later, and left to end by
itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context as Surroundings
from contextvars import copy_context

from rota.engine.execute import (
    LOST,
    MARGIN,
    NOTHING,
    SKIPPED,
    Finished,
    Ports,
    Stop,
    context_of,
    done,
    fated,
    is_to_be_skipped,
    judge,
    stopped,
    too_late,
)
from rota.model import at_work
from rota.model.context import Context
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

log = logging.getLogger("rota")

MOST_THREADS = 10_000


class ThreadExecutor:
    def __init__(self, finished: Finished, payload_limit: int, ports: Ports | None = None) -> None:
        self._finished = finished
        self._limit = payload_limit
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        # The desk knows how many may run. A thread whose job only waits for others takes none of its
        # places, so there may be more; one is made only when no other is idle.
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="rota")
        self._contexts: dict[Claimed, Context] = {}
        self._why: dict[Claimed, Stop] = {}
        self._deadlines: dict[Claimed, asyncio.TimerHandle] = {}
        self._late: set[Claimed] = set()

    def start(
        self,
        job: Claimed,
        task: Definition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        own = context_of(job, task, self._ports)
        self._contexts[job] = own
        if timeout is not None:
            self._deadlines[job] = self._loop.call_later(
                timeout, self._overdue, job, retry, timeout, time.perf_counter()
            )
        around = copy_context() if context is None else context
        self._threads.submit(around.run, self._attempt, own, job, task, retry, timeout)

    def _attempt(
        self, context: Context, job: Claimed, task: Definition, retry: Retry, timeout: float | None
    ) -> None:
        at_work.work.set(job)
        began = time.perf_counter()
        outcome: Outcome
        try:
            arguments = task.arguments.decode(job.args)
            if task.skip_if is not None and is_to_be_skipped(job, task.skip_if):
                outcome = SKIPPED
            else:
                value = (
                    task.fn(context, **arguments) if task.takes_context else task.fn(**arguments)
                )
                context.end_blocking()
                if timeout is not None and self._is_late(job, began, timeout):
                    raise too_late(timeout)
                outcome = NOTHING if value is None else done(value, task, self._limit)
        except BaseException as error:
            if context.cancelled and job in self._why:
                outcome = stopped(self._why[job])
            elif context.fate is not None:
                outcome = LOST  # its fate is looked at below
            elif timeout is not None and self._is_late(job, began, timeout):
                outcome = judge(too_late(timeout, error), job, retry, context)
            else:
                outcome = judge(error, job, retry, context)
        if context.fate is not None:
            outcome = fated(context.fate, self._why.get(job))
        took = time.perf_counter() - began
        try:
            self._loop.call_soon_threadsafe(self._ended, job, outcome, took)
        except RuntimeError:
            # The loop is gone: the worker gave up waiting for this thread, and gave the job back.
            return

    def _is_late(self, job: Claimed, began: float, timeout: float) -> bool:
        return job in self._late or time.perf_counter() - began > timeout

    def _ended(self, job: Claimed, outcome: Outcome, took: float) -> None:
        if self._contexts.pop(job, None) is None:
            self._late.discard(job)
            return  # it was given up
        if self._why and self._why.pop(job, None) is Stop.LOST:
            outcome = LOST
        if self._deadlines and (deadline := self._deadlines.pop(job, None)) is not None:
            deadline.cancel()
            self._late.discard(job)
        self._finished(job, outcome, took)

    def _overdue(self, job: Claimed, retry: Retry, timeout: float, began: float) -> None:
        self._late.add(job)
        self._deadlines[job] = self._loop.call_later(
            MARGIN, self._give_up, job, retry, timeout, began
        )
        self._contexts[job].cancel()

    def _give_up(self, job: Claimed, retry: Retry, timeout: float, began: float) -> None:
        del self._contexts[job], self._deadlines[job]
        log.warning(
            "job %s (%s) was told of its timeout of %g s and runs on; it is given up, and its thread left "
            'to end by itself. Look at ctx.cancelled now and then, or use isolation="process"',
            job.job,
            job.task,
            timeout,
        )
        why = self._why.pop(job, None)
        outcome = judge(too_late(timeout), job, retry) if why is None else stopped(why)
        self._finished(job, outcome, time.perf_counter() - began)

    def stop(self, job: Claimed, why: Stop) -> None:
        context = self._contexts.get(job)
        if context is not None:
            self._why[job] = why
            context.cancel()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
