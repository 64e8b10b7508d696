"""Interface of executors, and the functions they share: an executor turns a claimed job into an outcome.

    coroutines         on the worker's event loop    `CoroutineExecutor`
    plain functions    in threads                    `ThreadExecutor`
    isolated tasks     in child processes            `ProcessExecutor`

Every executor calls `on_finished` in the worker's event loop, once for each started job, with an
`Outcome`. Jobs are compared by their `ClaimedJob` object, not by id: an abandoned attempt may still run
while the next attempt of the same job does.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextvars import Context as Surroundings
from enum import Enum
from typing import Any, Protocol

import msgspec

from rota.errors import ArgumentError, Requeue, RetryLater, SignalTimeout, StepFailed, TaskTimeout
from rota.model import codec
from rota.model.context import Context, ContextBackend
from rota.model.outcome import (
    Discarded,
    FinalOutcome,
    Outcome,
    ResultUnstorable,
    Retried,
    Returned,
    Succeeded,
)
from rota.model.retry import Retry
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

OnFinished = Callable[[ClaimedJob, Outcome, float], None]

BackendFactory = Callable[[ClaimedJob], ContextBackend]

NO_RESULT = Succeeded(None)
RETURNED = Returned()
SKIPPED = FinalOutcome("skipped", None)
DISCARDED = Discarded()

REQUEUE_DELAY_SECONDS = 1.0
"""Pause before the next attempt after a `Requeue` that was raised while the worker is not draining."""


class StopReason(Enum):
    """Reason for stopping a running job."""

    CANCELLED = "cancelled"
    DRAINED = "drained"
    CLAIM_LOST = "lost"
    """This worker no longer holds the claim."""


class Executor(Protocol):
    """Executor for one kind of task."""

    def start(
        self,
        job: ClaimedJob,
        task: TaskDefinition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        """Start an attempt in `context`, its own context variables."""

    def stop(self, job: ClaimedJob, reason: StopReason) -> None:
        """Ask a job to stop. Its code may take time to stop, or ignore the request."""

    def close(self) -> None: ...


def outcome_of_error(
    error: BaseException, job: ClaimedJob, retry: Retry, context: Context | None = None
) -> Outcome:
    """Return the outcome of a failed attempt: a retry, or the final failure.

    Never raise: if the error cannot be handled or encoded, the job fails with the error of that.
    """
    try:
        return _outcome_of_error(error, job, retry, context)
    except Exception as raised:
        text = "".join(traceback.format_exception(raised))
        document = codec.encode_error(raised, job.attempt, "")
        return FinalOutcome("failed", document, codec.loggable(raised, text))


def _outcome_of_error(
    error: BaseException, job: ClaimedJob, retry: Retry, context: Context | None
) -> Outcome:
    if isinstance(error, Requeue) and context is not None and context.draining:
        return RETURNED
    raised, trace = error, error.__traceback__
    text = "".join(
        # Leave out the first frame: it is Rota's, not the user's code.
        traceback.format_exception(type(error), error, trace.tb_next if trace else None)
    )
    if isinstance(error, StepFailed) and error.__cause__ is not None:
        # Retry rules apply to the cause. The traceback already names the step.
        error = error.__cause__
    document = codec.encode_error(error, job.attempt, text)
    exception = codec.loggable(raised, text)
    delay = None if isinstance(error, _NON_RETRYABLE) else retry.delay_after(job.attempt, error)
    if delay is not None and isinstance(error, Requeue):
        delay = REQUEUE_DELAY_SECONDS
    if delay is None:
        return FinalOutcome("failed", document, exception)
    return Retried(delay, document, exception)


# Errors that another attempt would raise again. A signal timeout is in the journal and would be replayed.
_NON_RETRYABLE = (ResultUnstorable, SignalTimeout)


def timeout_error(timeout: float, error: BaseException | None = None) -> BaseException:
    """Return the error of an attempt that exceeded its timeout, also if it then returned or raised `error`.

    `RetryLater` and `Requeue` are kept: the task asked for them explicitly.
    """
    if isinstance(error, RetryLater | Requeue):
        return error
    timed_out = TaskTimeout(f"it took longer than its timeout of {timeout:g} s")
    timed_out.__cause__ = error
    return timed_out


def success(value: Any, task: TaskDefinition, payload_limit: int) -> Succeeded:
    try:
        return Succeeded(codec.encode(value, f"the result of task {task.name!r}", payload_limit))
    except ArgumentError as error:
        raise ResultUnstorable(str(error)) from None


def outcome_of_stop(reason: StopReason) -> Outcome:
    match reason:
        case StopReason.CANCELLED:
            return FinalOutcome("cancelled", None)
        case StopReason.DRAINED:
            return RETURNED
        case StopReason.CLAIM_LOST:
            return DISCARDED


def outcome_of_abandoned(
    job: ClaimedJob, retry: Retry, timeout: float, reason: StopReason | None
) -> Outcome:
    """Return the outcome of an attempt that exceeded its timeout and did not stop."""
    if reason is not None:
        return outcome_of_stop(reason)
    return outcome_of_error(timeout_error(timeout), job, retry)


def outcome_after_leaving(forced_outcome: Outcome, reason: StopReason | None) -> Outcome:
    """Return the outcome of an attempt whose outcome was forced, for example by suspending it.

    The result of its code is ignored. Only a cancellation takes precedence.
    """
    return outcome_of_stop(reason) if reason is StopReason.CANCELLED else forced_outcome


def should_skip(job: ClaimedJob, condition: TaskDefinition) -> bool:
    return bool(condition.fn(**condition.arguments_decoder.decode(job.args)))


def build_context(
    job: ClaimedJob, task: TaskDefinition, backend_for: BackendFactory | None
) -> Context:
    run = job.job if job.run is None else job.run
    backend = backend_for(job) if backend_for is not None else None
    return Context(
        job.job, run, task.name, job.queue, job.attempt, backend, job.checkpoint, job.options
    )


class _JobOptions(msgspec.Struct):
    retry: dict[str, Any] | None = None
    timeout: float | None = None


_OPTIONS_DECODER = msgspec.json.Decoder(_JobOptions)


def effective_policy(job: ClaimedJob, task: TaskDefinition) -> tuple[Retry, float | None]:
    """Return the task's retry rules and timeout, overridden by the options of this job."""
    if job.options is None:
        return task.policy.retry, task.policy.timeout
    options = _OPTIONS_DECODER.decode(job.options)
    retry = task.policy.retry
    if options.retry is not None:
        retry = Retry(**options.retry, non_retryable=retry.non_retryable)
    return retry, task.policy.timeout if options.timeout is None else options.timeout
