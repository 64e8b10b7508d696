"""Executor for plain functions, in threads.

A thread cannot be stopped from outside. On a request to stop, and at its timeout, `ctx.cancelled` becomes
true, and the job keeps its slot until its code ends. A job that exceeds its timeout is abandoned
TIMEOUT_MARGIN_SECONDS later: the attempt fails, and the thread ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context as Surroundings
from contextvars import copy_context

from rota.engine.execution.executor import (
    DISCARDED,
    NO_RESULT,
    SKIPPED,
    BackendFactory,
    OnFinished,
    StopReason,
    build_context,
    outcome_after_leaving,
    outcome_of_abandoned,
    outcome_of_error,
    outcome_of_stop,
    should_skip,
    success,
    timeout_error,
)
from rota.model import current_job
from rota.model.context import Context
from rota.model.outcome import TIMEOUT_MARGIN_SECONDS, Outcome
from rota.model.retry import Retry
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

log = logging.getLogger("rota")

MAX_THREADS = 10_000


class ThreadExecutor:
    def __init__(
        self,
        on_finished: OnFinished,
        payload_limit: int,
        backend_for: BackendFactory | None = None,
    ) -> None:
        self._on_finished = on_finished
        self._payload_limit = payload_limit
        self._backend_for = backend_for
        self._loop = asyncio.get_running_loop()
        # JobSlots limits the number of running jobs. A parked job uses a thread but no slot, so there may
        # be more threads than slots. A thread is created only if no other is idle.
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="rota")
        self._contexts: dict[ClaimedJob, Context] = {}
        self._stop_reasons: dict[ClaimedJob, StopReason] = {}
        self._deadlines: dict[ClaimedJob, asyncio.TimerHandle] = {}
        self._timed_out: set[ClaimedJob] = set()

    def start(
        self,
        job: ClaimedJob,
        task: TaskDefinition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        job_context = build_context(job, task, self._backend_for)
        self._contexts[job] = job_context
        if timeout is not None:
            self._deadlines[job] = self._loop.call_later(
                timeout, self._on_deadline, job, retry, timeout, time.perf_counter()
            )
        context_vars = copy_context() if context is None else context
        self._threads.submit(
            context_vars.run, self._run_attempt, job_context, job, task, retry, timeout
        )

    def _run_attempt(
        self,
        context: Context,
        job: ClaimedJob,
        task: TaskDefinition,
        retry: Retry,
        timeout: float | None,
    ) -> None:
        current_job.job.set(job)
        began = time.perf_counter()
        outcome: Outcome
        try:
            arguments = task.arguments_decoder.decode(job.args)
            if task.skip_if is not None and should_skip(job, task.skip_if):
                outcome = SKIPPED
            else:
                value = (
                    task.fn(context, **arguments) if task.takes_context else task.fn(**arguments)
                )
                context.end_sync()
                if timeout is not None and self._is_timed_out(job, began, timeout):
                    raise timeout_error(timeout)
                outcome = NO_RESULT if value is None else success(value, task, self._payload_limit)
        except BaseException as error:
            if context.cancelled and job in self._stop_reasons:
                outcome = outcome_of_stop(self._stop_reasons[job])
            elif context.forced_outcome is not None:
                outcome = DISCARDED  # replaced by the forced outcome below
            elif timeout is not None and self._is_timed_out(job, began, timeout):
                outcome = outcome_of_error(timeout_error(timeout, error), job, retry, context)
            else:
                outcome = outcome_of_error(error, job, retry, context)
        if context.forced_outcome is not None:
            outcome = outcome_after_leaving(context.forced_outcome, self._stop_reasons.get(job))
        seconds = time.perf_counter() - began
        try:
            self._loop.call_soon_threadsafe(self._on_attempt_ended, job, outcome, seconds)
        except RuntimeError:
            # The loop is closed: the worker has stopped waiting for this thread and returned the job.
            return

    def _is_timed_out(self, job: ClaimedJob, began: float, timeout: float) -> bool:
        return job in self._timed_out or time.perf_counter() - began > timeout

    def _on_attempt_ended(self, job: ClaimedJob, outcome: Outcome, seconds: float) -> None:
        if self._contexts.pop(job, None) is None:
            self._timed_out.discard(job)
            return  # the attempt was abandoned
        if self._stop_reasons and self._stop_reasons.pop(job, None) is StopReason.CLAIM_LOST:
            outcome = DISCARDED
        if self._deadlines and (deadline := self._deadlines.pop(job, None)) is not None:
            deadline.cancel()
            self._timed_out.discard(job)
        self._on_finished(job, outcome, seconds)

    def _on_deadline(self, job: ClaimedJob, retry: Retry, timeout: float, began: float) -> None:
        self._timed_out.add(job)
        self._deadlines[job] = self._loop.call_later(
            TIMEOUT_MARGIN_SECONDS, self._abandon, job, retry, timeout, began
        )
        self._contexts[job].cancel()

    def _abandon(self, job: ClaimedJob, retry: Retry, timeout: float, began: float) -> None:
        del self._contexts[job], self._deadlines[job]
        log.warning(
            "job %s (%s) exceeded its timeout of %g s and did not stop; the attempt is abandoned and its "
            'thread runs on; check ctx.cancelled in the task, or use isolation="process"',
            job.job,
            job.task,
            timeout,
        )
        outcome = outcome_of_abandoned(job, retry, timeout, self._stop_reasons.pop(job, None))
        self._on_finished(job, outcome, time.perf_counter() - began)

    def stop(self, job: ClaimedJob, reason: StopReason) -> None:
        context = self._contexts.get(job)
        if context is not None:
            self._stop_reasons[job] = reason
            context.cancel()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
