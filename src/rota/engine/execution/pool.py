"""Executors of a worker, chosen by task.

Coroutines run on the event loop, plain functions in threads, isolated tasks in child processes.
"""

from __future__ import annotations

from collections import defaultdict
from contextvars import copy_context
from typing import TYPE_CHECKING

from rota.engine.execution.coroutines import CoroutineExecutor
from rota.engine.execution.executor import (
    RETURNED,
    BackendFactory,
    Executor,
    OnFinished,
    StopReason,
)
from rota.engine.execution.process.executor import ProcessExecutor
from rota.engine.execution.process.task_address import scripts_being_loaded
from rota.engine.execution.threads import ThreadExecutor
from rota.engine.telemetry.otel import OtelTracer, report_lost_span
from rota.engine.telemetry.tracing import Tracing
from rota.errors import RotaError
from rota.model import current_job
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class ExecutorPool:
    def __init__(
        self,
        on_finished: OnFinished,
        payload_limit: int,
        max_processes: int,
        backend_for: BackendFactory | None = None,
        worker: int | None = None,
        tracing: Tracing | None = None,
        started: defaultdict[str, int] | None = None,
    ) -> None:
        if scripts_being_loaded:
            raise RotaError(
                f"{scripts_being_loaded[0]} is imported for its tasks and starts a worker; "
                'start the worker under `if __name__ == "__main__":`'
            )
        self._coroutines = CoroutineExecutor(on_finished, payload_limit, backend_for)
        self._threads = ThreadExecutor(on_finished, payload_limit, backend_for)
        self._processes = ProcessExecutor(
            on_finished, payload_limit, backend_for, max_processes, worker
        )
        self._started = defaultdict(int) if started is None else started
        self._executor_by_task: dict[TaskDefinition, Executor] = {}
        self._worker = worker
        self._tracing = tracing
        self._tracer: OtelTracer | None = None
        self._open_spans: dict[ClaimedJob, Span] = {}
        # Each job runs with the context variables of the worker's start, and none set by another job.
        self._context = copy_context()
        self._context.run(current_job.worker.set, worker)

    def _executor_for(self, task: TaskDefinition) -> Executor:
        if task.policy.isolation is not None:
            return self._processes
        return self._coroutines if task.is_async else self._threads

    def start(
        self, job: ClaimedJob, task: TaskDefinition, retry: Retry, timeout: float | None
    ) -> None:
        context = self._context.copy()
        if self._tracer is not None:
            context.run(self._start_span, self._tracer, job)
        self._started[job.task] += 1
        executor = self._executor_by_task.get(task)
        if executor is None:
            executor = self._executor_by_task[task] = self._executor_for(task)
        executor.start(job, task, retry, timeout, context)

    def refresh_tracing(self) -> None:
        """Update the tracer: attempts that start from now on are traced only if tracing is active."""
        if self._tracing is not None:
            self._tracer = self._tracing.active_spans()

    def _start_span(self, tracer: OtelTracer, job: ClaimedJob) -> None:
        try:
            self._open_spans[job] = tracer.start_attempt(job, self._worker)
        except Exception as error:
            report_lost_span(error)

    def end_span(self, job: ClaimedJob, outcome: Outcome) -> None:
        """End the span of an attempt, if it has one, with its outcome."""
        span = self._open_spans.pop(job, None)
        if span is None or self._tracer is None:
            return
        try:
            self._tracer.end_attempt(span, outcome)
        except Exception as error:
            report_lost_span(error)

    def stop(self, job: ClaimedJob, task: TaskDefinition, reason: StopReason) -> None:
        self._executor_for(task).stop(job, reason)

    def drain(self) -> None:
        """Notify child processes that the worker drains. Other code reads `draining` from the session."""
        self._processes.drain()

    def close(self) -> None:
        for job in list(self._open_spans):
            self.end_span(job, RETURNED)  # the job did not stop, and was returned to the queue
        self._threads.close()
        self._processes.close()

    async def wait_closed(self) -> None:
        """Wait until no process is left. Call close first."""
        await self._processes.wait_closed()
