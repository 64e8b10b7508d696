"""Outcomes of finished attempts: how each kind is recorded, read back, counted, logged and published.

`KINDS` is the table; the other functions apply it to a batch. Successes are recorded by one statement,
which also checks that this worker still holds the claims (the fence). The statements of the other kinds
call `rota.remove_from_claims`: it locks the claims and returns the jobs that they still hold, which the
statement then moves. The answer to the last statement of a transaction is a `MoveResult`.

Each kind has its own transaction. Two kinds in one transaction would release successors twice, and the
second release would lock rows in the wrong order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from rota.engine.telemetry.counters import Counters
from rota.engine.telemetry.event_bus import EventBus
from rota.engine.telemetry.otel import is_sampled
from rota.logs import job_fields
from rota.model import codec, events
from rota.model.outcome import (
    AlreadyRecorded,
    FinalOutcome,
    Outcome,
    Quarantined,
    Rejected,
    Restarted,
    Retried,
    Returned,
    Succeeded,
    Suspended,
)
from rota.store import claims, jobs, signals, steps
from rota.store.jobs import RECORDED_CLAIM, ClaimedJob, MoveResult
from rota.store.query import Query

log = logging.getLogger("rota")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

Ended = TypeVar("Ended", bound=Outcome)
Transaction = list[Query[Any]]


@dataclass(slots=True)
class FinishedAttempt(Generic[Ended]):
    job: ClaimedJob
    outcome: Ended
    seconds: float
    """Duration of the attempt; 0 if its code was not called."""


@dataclass(frozen=True, slots=True)
class OutcomeKind(Generic[Ended]):
    """Row of the table."""

    transaction: Callable[[int, list[FinishedAttempt[Ended]]], Transaction] | None
    """Returns the transaction that records attempts of a worker. None: they are recorded already."""
    answer: Literal["refused", "accepted", "ignored"]
    """Jobs that the answer lists. Ignored: refusals for jobs that were suspended, restarted or returned."""
    is_awaited: bool
    """True if clients that wait for the job have to be notified now."""
    counter: str | None
    """Counter of these attempts; None: the one named like the outcome's state."""
    event: Callable[[int, FinishedAttempt[Ended]], events.Event] | None
    log: Callable[[FinishedAttempt[Ended]], None] | None = None


class OutcomeBatch:
    """Finished attempts that are recorded together, in groups of one kind."""

    def __init__(
        self,
        attempts: Sequence[FinishedAttempt[Any]] = (),
        trace_links: Sequence[tuple[int, str]] = (),
    ) -> None:
        self.attempts = attempts
        self.trace_links = trace_links
        """Job and span of each traced job, so that jobs that waited for it can link to the span."""
        self._groups: dict[type[Any], list[FinishedAttempt[Any]]] = {}
        for each in attempts:
            self._groups.setdefault(type(each.outcome), []).append(each)

    def __bool__(self) -> bool:
        return bool(self.attempts)

    def of(self, kind: type[Ended]) -> list[FinishedAttempt[Ended]]:
        """Return the attempts with this kind of outcome."""
        return self._groups.get(kind, [])

    def groups(self) -> Iterator[tuple[OutcomeKind[Any], list[FinishedAttempt[Any]]]]:
        """Yield the kinds of outcomes in the batch, in the order of the table, with their attempts."""
        for outcome, kind in KINDS.items():
            if attempts := self._groups.get(outcome):
                yield kind, attempts

    def split(self) -> list[OutcomeBatch]:
        """Return one batch for each attempt."""
        return [OutcomeBatch([each]) for each in self.attempts]

    def claims(self) -> set[int]:
        return {each.job.claim for each in self.attempts} - {RECORDED_CLAIM}


class OutcomeQueue:
    """Finished attempts on their way from the slots to the claim loop."""

    def __init__(self) -> None:
        self.wake_claim_loop = asyncio.Event()
        self._attempts: list[FinishedAttempt[Any]] = []
        self._trace_links: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, job: ClaimedJob, outcome: Outcome, seconds: float) -> None:
        self._attempts.append(FinishedAttempt(job, outcome, seconds))

    def add_trace_link(self, job: ClaimedJob, span: str, outcome: Outcome) -> None:
        """Keep the span of a finished job, so that jobs that waited for it can link to it."""
        is_final = isinstance(outcome, Succeeded | FinalOutcome)
        if job.run is not None and is_final and is_sampled(span):
            self._trace_links.append((job.job, span))

    def claims(self) -> set[int]:
        return {each.job.claim for each in self._attempts}

    def take(self) -> OutcomeBatch:
        """Return the attempts since the last call."""
        batch = OutcomeBatch(self._attempts, self._trace_links)
        self._attempts, self._trace_links = [], []
        return batch


@dataclass(slots=True)
class BatchResult:
    """Result of recording a batch."""

    refused: list[int] = field(default_factory=list)
    """Jobs whose outcome was refused: this worker no longer holds them."""
    queues: set[str] = field(default_factory=set)
    """Queues that received jobs."""
    runs: list[int] = field(default_factory=list)
    """Runs that finished."""
    pending: bool = False
    """True if successors are left to release."""

    def add(self, move: MoveResult) -> None:
        self.queues.update(move.queues)
        self.runs += move.runs
        self.pending |= move.pending


# Recording


def transactions_for(worker: int, batch: OutcomeBatch) -> list[Transaction]:
    """Return the transactions that record a batch."""
    return [kind.transaction(worker, group) for kind, group in batch.groups() if kind.transaction]


def read_answers(batch: OutcomeBatch, answers: Sequence[list[list[Any]]]) -> BatchResult:
    """Return the result of a batch from the answers to its transactions."""
    result = BatchResult()
    recorded = [(kind, group) for kind, group in batch.groups() if kind.transaction]
    for (kind, group), statements in zip(recorded, answers, strict=True):
        [move] = statements[-1]
        if kind.answer == "refused":
            result.refused += move.jobs
        elif kind.answer == "accepted":
            accepted = set(move.jobs)
            result.refused += [each.job.job for each in group if each.job.job not in accepted]
        result.add(move)
    return result


def waiter_ids(batch: OutcomeBatch) -> list[int]:
    """Return the jobs and runs that may have finished with a batch: clients may wait for them."""
    finished = [each.job for kind, group in batch.groups() if kind.is_awaited for each in group]
    runs = {job.run for job in finished if job.run is not None}
    return [*(job.job for job in finished), *runs]


def publish(
    worker: int,
    batch: OutcomeBatch,
    refused: Collection[int],
    counters: Counters,
    event_bus: EventBus,
) -> None:
    """Count, log and publish the outcomes of a batch that the database has answered."""
    if refused:
        counters.refused += len(refused)
        _report_refused(worker, refused, event_bus)
    for kind, group in batch.groups():
        if refused:
            group = [each for each in group if each.job.job not in refused]
        if not group:
            continue
        _count(kind, group, counters)
        if kind.log is not None:
            for each in group:
                kind.log(each)
        if event_bus and kind.event is not None:
            for each in group:
                event_bus.publish(kind.event(worker, each))


def _report_refused(worker: int, refused: Collection[int], event_bus: EventBus) -> None:
    log.warning(
        "%s outcome(s) refused, for example of job %s: this worker no longer holds their claims",
        len(refused),
        min(refused),
    )
    if event_bus:
        for id in refused:
            event_bus.publish(events.OutcomeRefused(worker, id))


def _count(
    kind: OutcomeKind[Any], attempts: list[FinishedAttempt[Any]], counters: Counters
) -> None:
    if kind.counter is not None:
        counters.count_attempts(kind.counter, attempts)
        return
    for state in {each.outcome.state for each in attempts}:
        counters.count_attempts(state, [each for each in attempts if each.outcome.state == state])


# Transactions


def _complete(worker: int, attempts: list[FinishedAttempt[Succeeded]]) -> Transaction:
    done = [each.job for each in attempts]
    return [
        jobs.complete(
            worker,
            [job.claim for job in done],
            [job.job for job in done],
            [each.outcome.result for each in attempts],
            [each.seconds for each in attempts],
            [job.run is not None for job in done],
        )
    ]


def _finish(worker: int, attempts: list[FinishedAttempt[FinalOutcome]]) -> Transaction:
    return [
        jobs.finish(
            worker,
            *_claims_and_jobs(attempts),
            [each.outcome.state for each in attempts],
            [each.outcome.error for each in attempts],
            [each.seconds for each in attempts],
        )
    ]


def _retry(worker: int, attempts: list[FinishedAttempt[Retried]]) -> Transaction:
    return [
        jobs.retry(
            worker,
            *_claims_and_jobs(attempts),
            [each.outcome.delay for each in attempts],
            [each.outcome.error for each in attempts],
            [each.seconds for each in attempts],
        )
    ]


def _finish_lost(worker: int, attempts: list[FinishedAttempt[Rejected]]) -> Transaction:
    return [
        jobs.finish_lost(
            worker,
            *_claims_and_jobs(attempts),
            [each.outcome.state for each in attempts],
            [each.outcome.error for each in attempts],
        )
    ]


def _quarantine(worker: int, attempts: list[FinishedAttempt[Quarantined]]) -> Transaction:
    return [
        jobs.quarantine(
            worker,
            *_claims_and_jobs(attempts),
            [each.outcome.error for each in attempts],
        )
    ]


def _restart(worker: int, attempts: list[FinishedAttempt[Restarted]]) -> Transaction:
    return [
        steps.restart(
            worker, [each.job for each in attempts], [each.outcome.args for each in attempts]
        )
    ]


def _suspend(worker: int, attempts: list[FinishedAttempt[Suspended]]) -> Transaction:
    return suspend(worker, [(each.job, each.outcome) for each in attempts])


def _return(worker: int, attempts: list[FinishedAttempt[Returned]]) -> Transaction:
    return [
        jobs.return_to_queue(worker, *_claims_and_jobs(attempts)),
    ]


def _claims_and_jobs(attempts: Sequence[FinishedAttempt[Any]]) -> tuple[list[int], list[int]]:
    """Return the claim and the id of each job, as two lists."""
    return [each.job.claim for each in attempts], [each.job.job for each in attempts]


def suspend(worker: int, jobs: Sequence[tuple[ClaimedJob, Suspended]]) -> Transaction:
    """Return the transaction that suspends jobs.

    Signals are locked before claims. So a signal sent meanwhile either finds the job sleeping and wakes
    it, or is found by this transaction.
    """
    held = sorted({job.claim for job, _ in jobs})
    entries = [(job, entry) for job, suspended in jobs for entry in suspended.entries]
    waits = [(job, entry) for job, suspended in jobs for entry in suspended.waits]
    signal_waits = [(job, entry) for job, entry in waits if entry.kind == "wait"]
    return [
        *([signals.register_waits(signal_waits)] if signal_waits else []),
        claims.lock(worker, held),
        *([steps.record(worker, entries)] if entries else []),
        steps.suspend(worker, [job for job, _ in jobs], waits),
    ]


# Events and log lines


def _finished(worker: int, attempt: FinishedAttempt[FinalOutcome | Rejected]) -> events.Event:
    return _job_finished(worker, attempt, attempt.outcome.state)


def _succeeded(worker: int, attempt: FinishedAttempt[Any]) -> events.Event:
    return _job_finished(worker, attempt, "succeeded")


def _job_finished(worker: int, attempt: FinishedAttempt[Any], state: str) -> events.Event:
    job = attempt.job
    return events.JobFinished(worker, job.job, job.task, job.attempt, state, attempt.seconds)


def _retried(worker: int, attempt: FinishedAttempt[Retried]) -> events.Event:
    job = attempt.job
    return events.JobRetried(worker, job.job, job.task, job.attempt, attempt.outcome.delay)


def _log_failure(attempt: FinishedAttempt[FinalOutcome | Rejected]) -> None:
    job, outcome = attempt.job, attempt.outcome
    if outcome.state != "failed":
        return
    error = codec.decode_error(outcome.error.encode() if outcome.error else None)
    exception = outcome.exception if isinstance(outcome, FinalOutcome) else None
    log.error(
        "job %s (%s) failed on attempt %s: %s; it will not be retried",
        job.job,
        job.task,
        job.attempt,
        error.summary,
        exc_info=_exc_info(exception, error),
        extra=job_fields(job),
    )


def _log_retry(attempt: FinishedAttempt[Retried]) -> None:
    job, outcome = attempt.job, attempt.outcome
    error = codec.decode_error(outcome.error.encode())
    log.warning(
        "job %s (%s) failed on attempt %s: %s; retrying in %.1f s",
        job.job,
        job.task,
        job.attempt,
        error.summary,
        outcome.delay,
        exc_info=_exc_info(outcome.exception, error) if log.isEnabledFor(logging.DEBUG) else None,
        extra=job_fields(job),
    )


class RemoteError(Exception):
    """Error of an isolated task. Its text is the traceback in the process of the task."""


def _exc_info(exception: BaseException | None, error: codec.StoredError) -> ExcInfo | None:
    """Return the error for handlers that want the object, without the first frame, which is Rota's."""
    if exception is None:
        return (
            (RemoteError, RemoteError(error.traceback.rstrip()), None) if error.traceback else None
        )
    trace = exception.__traceback__
    return type(exception), exception, trace.tb_next if trace else None


def _log_quarantine(attempt: FinishedAttempt[Quarantined]) -> None:
    job = attempt.job
    log.error(
        "job %s (%s) is in quarantine: %s; release it with `rota release %s`, or cancel it",
        job.job,
        job.task,
        codec.decode_error(attempt.outcome.error.encode()).message,
        job.job,
        extra=job_fields(job),
    )


KINDS: dict[type[Outcome], OutcomeKind[Any]] = {
    Succeeded: OutcomeKind(_complete, "refused", True, "succeeded", _succeeded),
    FinalOutcome: OutcomeKind(_finish, "accepted", True, None, _finished, _log_failure),
    Retried: OutcomeKind(_retry, "accepted", True, "retried", _retried, _log_retry),
    Rejected: OutcomeKind(_finish_lost, "accepted", True, None, _finished, _log_failure),
    Quarantined: OutcomeKind(
        _quarantine,
        "accepted",
        True,
        "quarantined",
        lambda worker, each: events.JobQuarantined(worker, each.job.job, each.job.task),
        _log_quarantine,
    ),
    Suspended: OutcomeKind(
        _suspend,
        "ignored",
        False,
        "suspended",
        lambda worker, each: events.JobSuspended(worker, each.job.job, each.job.task),
    ),
    Restarted: OutcomeKind(_restart, "ignored", False, "suspended", None),
    Returned: OutcomeKind(
        _return,
        "ignored",
        False,
        "returned",
        lambda worker, each: events.JobReturned(worker, each.job.job, each.job.task),
    ),
    AlreadyRecorded: OutcomeKind(None, "ignored", False, "succeeded", _succeeded),
}
