"""How finished jobs are recorded: the transactions that do it, what their answers mean, what is said of it.

Successes are one statement, fence and all. The rest, which is rare, holds the claims first and then
moves: a statement of its own after the hold sees wishes to cancel that were written before it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.engine.announce import Announcer
from rota.engine.desk import Batch
from rota.logs import about
from rota.model import codec, events
from rota.model.outcome import Asleep, Judged
from rota.store import claims, jobs, signals, steps
from rota.store.jobs import Claimed, Moved
from rota.store.query import Query

log = logging.getLogger("rota")


@dataclass(slots=True)
class Answer:
    """What became of a batch: the jobs refused, the queues that have news, the runs that ended, and whether
    something is left to settle."""

    refused: list[int] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    runs: list[int] = field(default_factory=list)
    rest: bool = False

    def take(self, moved: Moved) -> None:
        self.queues.update(moved.queues)
        self.runs += moved.runs
        self.rest |= moved.rest


def transactions(worker: int, batch: Batch) -> list[list[Query[Any]]]:
    """The transactions that record a batch: successes in one statement, the rest under a hold."""
    segments: list[list[Query[Any]]] = []
    if batch.done:
        segments.append(
            [
                jobs.complete(
                    worker,
                    [job.claim for job, _, _ in batch.done],
                    [job.job for job, _, _ in batch.done],
                    [result for _, result, _ in batch.done],
                    [took for _, _, took in batch.done],
                    [job.run is not None for job, _, _ in batch.done],
                )
            ]
        )
    # Two transactions: each passes on the ends in it, and a second time would lock out of order.
    if batch.ended:
        held = sorted({job.claim for job, _, _ in batch.ended})
        segments.append(
            [
                claims.hold(worker, held),
                jobs.finish(
                    worker,
                    [job.claim for job, _, _ in batch.ended],
                    [job.job for job, _, _ in batch.ended],
                    [end.state for _, end, _ in batch.ended],
                    [end.error for _, end, _ in batch.ended],
                    [took for _, _, took in batch.ended],
                ),
                claims.release(worker, held, [job.job for job, _, _ in batch.ended]),
            ]
        )
    if batch.again:
        held = sorted({job.claim for job, _, _ in batch.again})
        segments.append(
            [
                claims.hold(worker, held),
                jobs.retry(
                    worker,
                    [job.claim for job, _, _ in batch.again],
                    [job.job for job, _, _ in batch.again],
                    [again.delay for _, again, _ in batch.again],
                    [again.error for _, again, _ in batch.again],
                    [took for _, _, took in batch.again],
                ),
                claims.release(worker, held, [job.job for job, _, _ in batch.again]),
            ]
        )
    for judged in (_failed(batch), _quarantined(batch)):
        if judged:
            held = sorted({job.claim for job, _ in judged})
            claimed = [job.claim for job, _ in judged]
            given = [job.job for job, _ in judged]
            errors = [end.error for _, end in judged]
            if judged[0][1].state == "quarantined":
                move = jobs.quarantine(worker, claimed, given, errors)
            else:
                move = jobs.judge(worker, claimed, given, [end.state for _, end in judged], errors)
            release = claims.release(worker, held, given)
            segments.append([claims.hold(worker, held), move, release])
    if batch.asleep:
        segments.append(suspend(worker, [(job, asleep) for job, asleep, _ in batch.asleep]))
    if batch.restarted:
        held = sorted({job.claim for job, _, _ in batch.restarted})
        anew = [job for job, _, _ in batch.restarted]
        segments.append(
            [
                claims.hold(worker, held),
                steps.clear(worker, anew, [each.args for _, each, _ in batch.restarted]),
                claims.release(worker, held, [job.job for job in anew]),
            ]
        )
    if batch.unstarted:
        segments.append(
            give_back(
                worker,
                sorted({job.claim for job in batch.unstarted}),
                [job.job for job in batch.unstarted],
            )
        )
    return segments


def read(batch: Batch, answers: Sequence[list[list[Any]]]) -> Answer:
    """What the answers to a batch's transactions say."""
    answer = Answer()
    each = iter(answers)
    if batch.done:
        [[moved]] = next(each)
        answer.refused += moved.jobs
        answer.take(moved)
    rare = (batch.ended, batch.again, _failed(batch), _quarantined(batch))
    for some in rare:
        if some:
            _, [moved], _ = next(each)
            accepted = set(moved.jobs)
            answer.refused += [job.job for job, *_ in some if job.job not in accepted]
            answer.take(moved)
    for left in (batch.asleep, batch.restarted, batch.unstarted):
        if left:
            *_, [moved], _ = next(each)
            answer.take(moved)
    return answer


def concerned(batch: Batch) -> list[int]:
    """Jobs and runs that may have ended with a batch: somebody may wait for them."""
    ended = [job for job, _, _ in batch.done] + [job for job, _, _ in (*batch.ended, *batch.again)]
    ended += [job for job, _ in batch.judged]
    runs = {job.run for job in ended if job.run is not None}
    return [*(job.job for job in ended), *runs]


def _failed(batch: Batch) -> list[tuple[Claimed, Judged]]:
    return [each for each in batch.judged if each[1].state != "quarantined"]


def _quarantined(batch: Batch) -> list[tuple[Claimed, Judged]]:
    return [each for each in batch.judged if each[1].state == "quarantined"]


def announce(worker: int, batch: Batch, lost: set[int], announcer: Announcer) -> None:
    """Say what became of a batch, now that the database has said it."""
    if lost:
        log.warning("%s outcome(s) refused: no longer ours, e.g. job %s", len(lost), min(lost))
    for job, end, _ in batch.ended:
        if end.state == "failed" and job.job not in lost:
            log.warning(
                "job %s (%s) failed for good at attempt %s: %s",
                job.job,
                job.task,
                job.attempt,
                codec.error_type(end.error),
                extra=about(job),
            )
    for job, again, _ in batch.again:
        if job.job not in lost:
            log.info(
                "job %s (%s) failed at attempt %s: %s; next in %.1f s",
                job.job,
                job.task,
                job.attempt,
                codec.error_type(again.error),
                again.delay,
                extra=about(job),
            )
    for job, judged in batch.judged:
        if judged.state == "quarantined" and job.job not in lost:
            log.error(
                "job %s (%s) is in quarantine: %s; release it with `rota release %s`, or cancel it",
                job.job,
                job.task,
                codec.read_error(judged.error.encode()).message,
                job.job,
                extra=about(job),
            )
    if not announcer:
        return
    for id in lost:
        announcer.announce(events.OutcomeRefused(worker, id))
    ends = [
        *((job, "succeeded", took) for job, _, took in batch.done),
        *((job, end.state, took) for job, end, took in batch.ended),
        *((job, end.state, 0.0) for job, end in _failed(batch)),
        *((job, "succeeded", took) for job, took in batch.recorded),
    ]
    for job, state, took in ends:
        if job.job not in lost:
            announcer.announce(
                events.JobFinished(worker, job.job, job.task, job.attempt, state, took)
            )
    for job, again, _ in batch.again:
        if job.job not in lost:
            announcer.announce(
                events.JobRetried(worker, job.job, job.task, job.attempt, again.delay)
            )
    for job, _ in _quarantined(batch):
        if job.job not in lost:
            announcer.announce(events.JobQuarantined(worker, job.job, job.task))
    for job, _, _ in batch.asleep:
        announcer.announce(events.JobSlept(worker, job.job, job.task))
    for job in batch.unstarted:
        announcer.announce(events.JobGivenBack(worker, job.job, job.task))


def suspend(worker: int, jobs: Sequence[tuple[Claimed, Asleep]]) -> list[Query[Any]]:
    """The transaction that lays jobs to sleep: signals are locked before claims, so that who sends one
    finds them asleep or is seen."""
    held = sorted({job.claim for job, _ in jobs})
    kept = [(job, entry) for job, asleep in jobs for entry in asleep.kept]
    waits = [(job, entry) for job, asleep in jobs for entry in asleep.waits]
    listening = [(job, entry) for job, entry in waits if entry.kind == "wait"]
    return [
        *([signals.expect(listening)] if listening else []),
        claims.hold(worker, held),
        *([steps.record(worker, kept)] if kept else []),
        steps.suspend(worker, [job for job, _ in jobs], waits),
        claims.release(worker, held, [job.job for job, _ in jobs]),
    ]


def give_back(worker: int, held: Sequence[int], given: Sequence[int]) -> list[Query[Any]]:
    """The transaction that puts unfinished jobs back."""
    return [
        claims.seize(worker, held),
        jobs.give_back(worker, held, given),
        claims.release(worker, held, given),
    ]
