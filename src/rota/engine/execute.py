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

from rota.errors import (
    ArgumentError,
    HandBack,
    RetryLater,
    SignalTimeout,
    StepFailed,
    TaskTimeout,
)
from rota.model import codec
from rota.model.context import Context, Port
from rota.model.outcome import Again, Done, Ended, Lost, Outcome, Unstarted
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

Finished = Callable[[Claimed, Outcome, float], None]

Ports = Callable[[Claimed], Port]

NOTHING = Done(None)
UNSTARTED = Unstarted()
SKIPPED = Ended("skipped", None)
LOST = Lost()

MARGIN = 5.0
"""Seconds an attempt gets beyond its deadline to end by itself, before it is given up."""

HANDED_BACK = 1.0
"""Seconds until the next attempt after a HandBack that nothing asked for."""


class Stop(Enum):
    """Why a running job is told to stop."""

    CANCELLED = "cancelled"
    DRAINED = "drained"
    LOST = "lost"
    """The claim is somebody else's now."""


class Executor(Protocol):
    """Runs jobs of one kind."""

    def start(
        self,
        job: Claimed,
        task: Definition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        """Begin an attempt, with variables of its own."""

    def stop(self, job: Claimed, why: Stop) -> None:
        """Ask a job to stop; it may take its time, and it may not listen."""

    def close(self) -> None: ...


def judge(
    error: BaseException, job: Claimed, retry: Retry, context: Context | None = None
) -> Outcome:
    """What a failed attempt comes to: another one later, or the end. Never raises: an error that cannot
    be judged is recorded as one that could not."""
    try:
        return _judge(error, job, retry, context)
    except Exception as trouble:
        return Ended("failed", codec.error_document(trouble, job.attempt, ""))


def _judge(error: BaseException, job: Claimed, retry: Retry, context: Context | None) -> Outcome:
    if isinstance(error, HandBack) and context is not None and context.draining:
        return UNSTARTED
    trace = error.__traceback__
    text = "".join(
        # The first frame is ours and says nothing about the user's code.
        traceback.format_exception(type(error), error, trace.tb_next if trace else None)
    )
    if isinstance(error, StepFailed) and error.__cause__ is not None:
        # What went wrong is what counts, not where; the text says that.
        error = error.__cause__
    document = codec.error_document(error, job.attempt, text)
    delay = None if isinstance(error, _FINAL) else retry.after(job.attempt, error)
    if delay is not None and isinstance(error, HandBack):
        delay = HANDED_BACK
    return Ended("failed", document) if delay is None else Again(delay, document)


class Unstorable(Exception):
    """The code ran, but what it returned cannot be stored; running it again would not help."""


# What another attempt would come to as well: that nobody sent a signal in time is kept.
_FINAL = (Unstorable, SignalTimeout)


def too_late(timeout: float, error: BaseException | None = None) -> BaseException:
    """What an attempt fails with that has missed its deadline, whatever it answered or raised in the end;
    only what a task asks for by name is heard all the same."""
    if isinstance(error, RetryLater | HandBack):
        return error
    late = TaskTimeout(f"it took longer than its timeout of {timeout:g} s")
    late.__cause__ = error
    return late


def done(value: Any, task: Definition, limit: int) -> Done:
    try:
        return Done(codec.encode(value, f"what task {task.name!r} returned", limit))
    except ArgumentError as error:
        raise Unstorable(str(error)) from None


def stopped(why: Stop) -> Outcome:
    match why:
        case Stop.CANCELLED:
            return Ended("cancelled", None)
        case Stop.DRAINED:
            return UNSTARTED
        case Stop.LOST:
            return LOST


def fated(fate: Outcome, why: Stop | None) -> Outcome:
    """What an attempt comes to whose job has left, whatever its code did then."""
    return stopped(why) if why is Stop.CANCELLED else fate


def is_to_be_skipped(job: Claimed, condition: Definition) -> bool:
    return bool(condition.fn(**condition.arguments.decode(job.args)))


def context_of(job: Claimed, task: Definition, ports: Ports | None) -> Context:
    run = job.job if job.run is None else job.run
    port = ports(job) if ports is not None else None
    return Context(
        job.job, run, task.name, job.queue, job.attempt, port, job.checkpoint, job.options
    )


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
