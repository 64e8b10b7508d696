"""Recording of outcomes: the transactions, their answers, and the log lines and events about them.

Successes are recorded by one statement, which includes the fence. Other outcomes are rare. Their
transactions lock the claims first and move the jobs in a second statement, which therefore sees cancel
requests that were written before the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.engine.telemetry.event_bus import EventBus
from rota.engine.worker.slots import OutcomeBatch
from rota.logs import job_fields
from rota.model import codec, events
from rota.model.outcome import Rejected, Suspended
from rota.store import claims, jobs, signals, steps
from rota.store.jobs import ClaimedJob, MoveResult
from rota.store.query import Query

log = logging.getLogger("rota")


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


def statements_for(worker: int, batch: OutcomeBatch) -> list[list[Query[Any]]]:
    """Return the transactions that record a batch.

    Successes are one statement. The transactions of all other outcomes lock the claims first.
    """
    transactions: list[list[Query[Any]]] = []
    if batch.succeeded:
        transactions.append(
            [
                jobs.complete(
                    worker,
                    [job.claim for job, _, _ in batch.succeeded],
                    [job.job for job, _, _ in batch.succeeded],
                    [result for _, result, _ in batch.succeeded],
                    [seconds for _, _, seconds in batch.succeeded],
                    [job.run is not None for job, _, _ in batch.succeeded],
                )
            ]
        )
    # Separate transactions: each releases successors, and doing so twice would lock out of order.
    if batch.finished:
        held = sorted({job.claim for job, _, _ in batch.finished})
        transactions.append(
            [
                claims.lock(worker, held),
                jobs.finish(
                    worker,
                    [job.claim for job, _, _ in batch.finished],
                    [job.job for job, _, _ in batch.finished],
                    [outcome.state for _, outcome, _ in batch.finished],
                    [outcome.error for _, outcome, _ in batch.finished],
                    [seconds for _, _, seconds in batch.finished],
                ),
                claims.release(worker, held, [job.job for job, _, _ in batch.finished]),
            ]
        )
    if batch.retried:
        held = sorted({job.claim for job, _, _ in batch.retried})
        transactions.append(
            [
                claims.lock(worker, held),
                jobs.retry(
                    worker,
                    [job.claim for job, _, _ in batch.retried],
                    [job.job for job, _, _ in batch.retried],
                    [retried.delay for _, retried, _ in batch.retried],
                    [retried.error for _, retried, _ in batch.retried],
                    [seconds for _, _, seconds in batch.retried],
                ),
                claims.release(worker, held, [job.job for job, _, _ in batch.retried]),
            ]
        )
    for rejected in (_not_quarantined(batch), _quarantined(batch)):
        if rejected:
            held = sorted({job.claim for job, _ in rejected})
            claim_ids = [job.claim for job, _ in rejected]
            job_ids = [job.job for job, _ in rejected]
            errors = [outcome.error for _, outcome in rejected]
            if rejected[0][1].state == "quarantined":
                query = jobs.quarantine(worker, claim_ids, job_ids, errors)
            else:
                query = jobs.finish_lost(
                    worker, claim_ids, job_ids, [outcome.state for _, outcome in rejected], errors
                )
            release = claims.release(worker, held, job_ids)
            transactions.append([claims.lock(worker, held), query, release])
    if batch.suspended:
        transactions.append(
            suspend(worker, [(job, suspended) for job, suspended, _ in batch.suspended])
        )
    if batch.restarted:
        held = sorted({job.claim for job, _, _ in batch.restarted})
        restarted = [job for job, _, _ in batch.restarted]
        transactions.append(
            [
                claims.lock(worker, held),
                steps.restart(worker, restarted, [each.args for _, each, _ in batch.restarted]),
                claims.release(worker, held, [job.job for job in restarted]),
            ]
        )
    if batch.returned:
        transactions.append(
            return_to_queue(
                worker,
                sorted({job.claim for job in batch.returned}),
                [job.job for job in batch.returned],
            )
        )
    return transactions


def read_answers(batch: OutcomeBatch, answers: Sequence[list[list[Any]]]) -> BatchResult:
    """Return the result of a batch from the answers to its transactions."""
    result = BatchResult()
    each = iter(answers)
    if batch.succeeded:
        [[move]] = next(each)
        result.refused += move.jobs
        result.add(move)
    rare = (batch.finished, batch.retried, _not_quarantined(batch), _quarantined(batch))
    for entries in rare:
        if entries:
            _, [move], _ = next(each)
            accepted = set(move.jobs)
            result.refused += [job.job for job, *_ in entries if job.job not in accepted]
            result.add(move)
    for unfinished in (batch.suspended, batch.restarted, batch.returned):
        if unfinished:
            *_, [move], _ = next(each)
            result.add(move)
    return result


def waiter_ids(batch: OutcomeBatch) -> list[int]:
    """Return the jobs and runs that may have finished with a batch: clients may wait for them."""
    finished = [job for job, _, _ in batch.succeeded] + [
        job for job, _, _ in (*batch.finished, *batch.retried)
    ]
    finished += [job for job, _ in batch.rejected]
    runs = {job.run for job in finished if job.run is not None}
    return [*(job.job for job in finished), *runs]


def _not_quarantined(batch: OutcomeBatch) -> list[tuple[ClaimedJob, Rejected]]:
    return [each for each in batch.rejected if each[1].state != "quarantined"]


def _quarantined(batch: OutcomeBatch) -> list[tuple[ClaimedJob, Rejected]]:
    return [each for each in batch.rejected if each[1].state == "quarantined"]


def publish(worker: int, batch: OutcomeBatch, refused: set[int], event_bus: EventBus) -> None:
    """Log and publish the outcomes of a batch that the database has answered."""
    if refused:
        log.warning(
            "%s outcome(s) refused, for example of job %s: this worker no longer holds their claims",
            len(refused),
            min(refused),
        )
    for job, outcome, _ in batch.finished:
        if outcome.state == "failed" and job.job not in refused:
            log.warning(
                "job %s (%s) failed on attempt %s: %s; it will not be retried",
                job.job,
                job.task,
                job.attempt,
                codec.error_type(outcome.error),
                extra=job_fields(job),
            )
    for job, retried, _ in batch.retried:
        if job.job not in refused:
            log.info(
                "job %s (%s) failed on attempt %s: %s; retrying in %.1f s",
                job.job,
                job.task,
                job.attempt,
                codec.error_type(retried.error),
                retried.delay,
                extra=job_fields(job),
            )
    for job, rejected in batch.rejected:
        if rejected.state == "quarantined" and job.job not in refused:
            log.error(
                "job %s (%s) is in quarantine: %s; release it with `rota release %s`, or cancel it",
                job.job,
                job.task,
                codec.decode_error(rejected.error.encode()).message,
                job.job,
                extra=job_fields(job),
            )
    if not event_bus:
        return
    for id in refused:
        event_bus.publish(events.OutcomeRefused(worker, id))
    finished = [
        *((job, "succeeded", seconds) for job, _, seconds in batch.succeeded),
        *((job, outcome.state, seconds) for job, outcome, seconds in batch.finished),
        *((job, outcome.state, 0.0) for job, outcome in _not_quarantined(batch)),
        *((job, "succeeded", seconds) for job, seconds in batch.already_recorded),
    ]
    for job, state, seconds in finished:
        if job.job not in refused:
            event_bus.publish(
                events.JobFinished(worker, job.job, job.task, job.attempt, state, seconds)
            )
    for job, retried, _ in batch.retried:
        if job.job not in refused:
            event_bus.publish(
                events.JobRetried(worker, job.job, job.task, job.attempt, retried.delay)
            )
    for job, _ in _quarantined(batch):
        if job.job not in refused:
            event_bus.publish(events.JobQuarantined(worker, job.job, job.task))
    for job, _, _ in batch.suspended:
        event_bus.publish(events.JobSuspended(worker, job.job, job.task))
    for job in batch.returned:
        event_bus.publish(events.JobReturned(worker, job.job, job.task))


def suspend(worker: int, jobs: Sequence[tuple[ClaimedJob, Suspended]]) -> list[Query[Any]]:
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
        claims.release(worker, held, [job.job for job, _ in jobs]),
    ]


def return_to_queue(
    worker: int, claim_ids: Sequence[int], job_ids: Sequence[int]
) -> list[Query[Any]]:
    """Return the transaction that returns unfinished jobs to the queue."""
    return [
        claims.lock_exclusive(worker, claim_ids),
        jobs.return_to_queue(worker, claim_ids, job_ids),
        claims.release(worker, claim_ids, job_ids),
    ]
