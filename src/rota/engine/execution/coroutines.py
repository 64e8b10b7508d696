"""Executor for coroutines, on the worker's event loop.

A coroutine is cancelled on a request to stop, and at its timeout. If it runs on after its timeout, it is
abandoned TIMEOUT_MARGIN_SECONDS later: the attempt fails, its slot is free, and its result is ignored.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable
from contextvars import Context as Surroundings
from typing import Any

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
from rota.errors import Requeue
from rota.model import current_job
from rota.model.context import Context
from rota.model.outcome import TIMEOUT_MARGIN_SECONDS, Outcome
from rota.model.retry import Retry
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

log = logging.getLogger("rota")


class CoroutineExecutor:
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
        # Strong references: the loop itself keeps only weak ones.
        self._tasks: dict[ClaimedJob, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._stop_reasons: dict[ClaimedJob, StopReason] = {}

    def start(
        self,
        job: ClaimedJob,
        task: TaskDefinition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        attempt = self._run_attempt(job, task, retry, timeout)
        self._tasks[job] = self._loop.create_task(attempt, context=context)

    async def _run_attempt(
        self, job: ClaimedJob, task: TaskDefinition, retry: Retry, timeout: float | None
    ) -> None:
        current_job.job.set(job)
        began = time.perf_counter()
        outcome: Outcome
        context: Context | None = None
        try:
            if self._stop_reasons and job in self._stop_reasons:
                raise asyncio.CancelledError  # stopped before it began
            arguments = task.arguments_decoder.decode(job.args)
            if task.skip_if is not None and should_skip(job, task.skip_if):
                outcome = SKIPPED
            else:
                if task.takes_context:
                    context = build_context(job, task, self._backend_for)
                    call = task.fn(context, **arguments)
                else:
                    call = task.fn(**arguments)
                if timeout is None:
                    value = await call
                else:
                    value = await self._run_with_timeout(timeout, call, job, retry)
                if context is not None:
                    await context.end()
                outcome = NO_RESULT if value is None else success(value, task, self._payload_limit)
        except asyncio.CancelledError as error:
            outcome = self._outcome_of_cancel(error, job, retry, context)
        except (Exception, SystemExit) as error:
            if context is None and isinstance(error, Requeue):
                context = build_context(job, task, self._backend_for)
            outcome = outcome_of_error(error, job, retry, context)
        if context is not None and context.forced_outcome is not None:
            outcome = outcome_after_leaving(context.forced_outcome, self._stop_reasons.get(job))
        if self._stop_reasons and self._stop_reasons.pop(job, None) is StopReason.CLAIM_LOST:
            outcome = DISCARDED
        if self._tasks.pop(job, None) is not None:  # else the attempt was abandoned
            self._on_finished(job, outcome, time.perf_counter() - began)

    def _outcome_of_cancel(
        self,
        error: asyncio.CancelledError,
        job: ClaimedJob,
        retry: Retry,
        context: Context | None,
    ) -> Outcome:
        reason = self._stop_reasons.get(job)
        if reason is not None:
            return outcome_of_stop(reason)
        if context is not None and context.forced_outcome is not None:
            return DISCARDED  # the caller replaces it by the forced outcome
        return outcome_of_error(error, job, retry)

    async def _run_with_timeout(
        self, timeout: float, call: Awaitable[Any], job: ClaimedJob, retry: Retry
    ) -> Any:
        abandon_timer = self._loop.call_later(
            timeout + TIMEOUT_MARGIN_SECONDS,
            self._abandon,
            job,
            retry,
            timeout,
            time.perf_counter(),
        )
        raised: BaseException | None = None
        try:
            async with asyncio.timeout(timeout) as scope:
                value = await call
        except asyncio.CancelledError:
            raise  # cancelled by a stop request, not by the timeout
        except BaseException as error:
            if not scope.expired():
                raise
            raised = None if isinstance(error, TimeoutError) else error
        finally:
            abandon_timer.cancel()
        if scope.expired():
            raise timeout_error(timeout, raised)
        return value

    def _abandon(self, job: ClaimedJob, retry: Retry, timeout: float, began: float) -> None:
        running = self._tasks.pop(job, None)
        if running is None:
            return
        self._abandoned.add(running)
        running.add_done_callback(self._abandoned.discard)
        log.warning(
            "job %s (%s) exceeded its timeout of %g s and did not stop when cancelled; the attempt is "
            "abandoned and its result is discarded",
            job.job,
            job.task,
            timeout,
        )
        outcome = outcome_of_abandoned(job, retry, timeout, self._stop_reasons.pop(job, None))
        self._on_finished(job, outcome, time.perf_counter() - began)

    def stop(self, job: ClaimedJob, reason: StopReason) -> None:
        task = self._tasks.get(job)
        if task is not None:
            self._stop_reasons[job] = reason
            # A coroutine that is cancelled before its first step would never report an outcome.
            # It checks the stop reason when it begins.
            coroutine = task.get_coro()
            assert inspect.iscoroutine(coroutine)
            if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
                task.cancel()

    def close(self) -> None:
        pass
