"""One claimed job → an outcome: what all ways of running code have in common.

How code is run is an interface: coroutines on the loop, plain functions in threads, isolated ones in
processes. Whatever the code does, what comes out is an `Outcome`, handed to `finished` in the worker's
loop, once for each job that was started. Jobs are told apart by the claim's object, not by their number:
an attempt that was given up may still run when the same job's next one does.
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

ServicesFactory = Callable[[ClaimedJob], ContextBackend]

NO_RESULT = Succeeded(None)
RETURNED = Returned()
SKIPPED = FinalOutcome("skipped", None)
DISCARDED = Discarded()

REQUEUE_DELAY_SECONDS = 1.0
"""Seconds until the next attempt after a Requeue that nothing asked for."""


class StopReason(Enum):
    """Why a running job is told to stop."""

    CANCELLED = "cancelled"
    DRAINED = "drained"
    CLAIM_LOST = "lost"
    """The claim is somebody else's now."""


class Executor(Protocol):
    """Runs jobs of one kind."""

    def start(
        self,
        job: ClaimedJob,
        task: TaskDefinition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        """Begin an attempt, with variables of its own."""

    def stop(self, job: ClaimedJob, reason: StopReason) -> None:
        """Ask a job to stop; it may take its time, and it may not listen."""

    def close(self) -> None: ...


def outcome_of_error(
    error: BaseException, job: ClaimedJob, retry: Retry, context: Context | None = None
) -> Outcome:
    """What a failed attempt comes to: another one later, or the end. Never raises: an error that cannot
    be judged is recorded as one that could not."""
    try:
        return _outcome_of_error(error, job, retry, context)
    except Exception as raised:
        return FinalOutcome("failed", codec.encode_error(raised, job.attempt, ""))


def _outcome_of_error(
    error: BaseException, job: ClaimedJob, retry: Retry, context: Context | None
) -> Outcome:
    if isinstance(error, Requeue) and context is not None and context.draining:
        return RETURNED
    trace = error.__traceback__
    text = "".join(
        # The first frame is ours and says nothing about the user's code.
        traceback.format_exception(type(error), error, trace.tb_next if trace else None)
    )
    if isinstance(error, StepFailed) and error.__cause__ is not None:
        # What went wrong is what counts, not where; the text says that.
        error = error.__cause__
    document = codec.encode_error(error, job.attempt, text)
    delay = None if isinstance(error, _NON_RETRYABLE) else retry.delay_after(job.attempt, error)
    if delay is not None and isinstance(error, Requeue):
        delay = REQUEUE_DELAY_SECONDS
    return FinalOutcome("failed", document) if delay is None else Retried(delay, document)


# What another attempt would come to as well: that nobody sent a signal in time is kept.
_NON_RETRYABLE = (ResultUnstorable, SignalTimeout)


def timeout_error(timeout: float, error: BaseException | None = None) -> BaseException:
    """What an attempt fails with that has missed its deadline, whatever it answered or raised in the end;
    only what a task asks for by name is heard all the same."""
    if isinstance(error, RetryLater | Requeue):
        return error
    timed_out = TaskTimeout(f"it took longer than its timeout of {timeout:g} s")
    timed_out.__cause__ = error
    return timed_out


def success(value: Any, task: TaskDefinition, payload_limit: int) -> Succeeded:
    try:
        return Succeeded(codec.encode(value, f"what task {task.name!r} returned", payload_limit))
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


def outcome_after_leaving(forced_outcome: Outcome, reason: StopReason | None) -> Outcome:
    """What an attempt comes to whose job has left, whatever its code did then."""
    return outcome_of_stop(reason) if reason is StopReason.CANCELLED else forced_outcome


def should_skip(job: ClaimedJob, condition: TaskDefinition) -> bool:
    return bool(condition.fn(**condition.arguments_decoder.decode(job.args)))


def build_context(
    job: ClaimedJob, task: TaskDefinition, services_for: ServicesFactory | None
) -> Context:
    run = job.job if job.run is None else job.run
    services = services_for(job) if services_for is not None else None
    return Context(
        job.job, run, task.name, job.queue, job.attempt, services, job.checkpoint, job.options
    )


class _JobOptions(msgspec.Struct):
    retry: dict[str, Any] | None = None
    timeout: float | None = None


_OPTIONS_DECODER = msgspec.json.Decoder(_JobOptions)


def effective_policy(job: ClaimedJob, task: TaskDefinition) -> tuple[Retry, float | None]:
    """The task's policy, with what this job's start said instead."""
    if job.options is None:
        return task.policy.retry, task.policy.timeout
    options = _OPTIONS_DECODER.decode(job.options)
    retry = task.policy.retry
    if options.retry is not None:
        retry = Retry(**options.retry, non_retryable=retry.non_retryable)
    return retry, task.policy.timeout if options.timeout is None else options.timeout
