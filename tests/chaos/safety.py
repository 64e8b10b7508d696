"""Safety invariants: no job is lost, no effect counts twice, no stale worker writes. I1 to I5 and I9."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .evidence import Evidence, Violation
from .job_places import by_job, steps

RACE = 1.0
"""Seconds for which a statement may run that began before its worker was declared dead."""


def nothing_lost(evidence: Evidence) -> Iterator[Violation]:
    """I1: every acknowledged start and every job has an outcome by the end of the quiet period.

    Quarantine counts as an outcome for tasks that may kill workers.
    """
    known = evidence.jobs.keys() | evidence.runs.keys()
    for run in sorted(evidence.acknowledged - known):
        yield Violation("I1", f"run {run} was acknowledged, and there is no such run")
    for job in evidence.jobs.values():
        if job.id in evidence.outcomes:
            continue
        budget = evidence.budgets.get(job.task)
        if job.id in evidence.quarantined and budget is not None and budget.poison:
            continue
        where = "in quarantine" if job.id in evidence.quarantined else "without an outcome"
        yield Violation("I1", f"job {job.id} ({job.task}) is {where}")
    for run in sorted(evidence.runs.keys() - evidence.outcomes.keys()):
        if not evidence.quarantined.intersection(evidence.runs[run].jobs):
            yield Violation("I1", f"run {run} has not ended")


def effects_once(evidence: Evidence) -> Iterator[Violation]:
    """I2: a job that succeeded has its transactional effect once; any other job has none."""
    found = Counter(effect.job for effect in evidence.effects)
    for job in evidence.jobs.values():
        budget = evidence.budgets.get(job.task)
        if budget is None or not budget.effect:
            continue
        outcome = evidence.outcomes.get(job.id)
        wanted = 1 if outcome is not None and outcome.state == "succeeded" else 0
        if found[job.id] != wanted:
            state = outcome.state if outcome else "open"
            yield Violation("I2", f"job {job.id} is {state} with {found[job.id]} effects")
    for job_id in sorted(found.keys() - evidence.jobs.keys()):
        yield Violation("I2", f"an effect of job {job_id}, which is none")


def one_outcome(evidence: Evidence) -> Iterator[Violation]:
    """I3: a job has at most one outcome, and it does not change."""
    ends: Counter[int] = Counter()
    for move in evidence.moves:
        if move.place == "outcome":
            if move.enters:
                ends[move.job] += 1
            else:
                yield Violation("I3", f"the outcome of job {move.job} was changed or removed")
    for job, count in ends.items():
        if count > 1:
            yield Violation("I3", f"job {job} was given {count} outcomes")
        if job not in evidence.outcomes:
            yield Violation("I3", f"the outcome of job {job} is gone")
    for job in sorted(evidence.outcomes.keys() - ends.keys()):
        yield Violation("I3", f"nobody saw job {job} end, but it has an outcome")


def one_place(evidence: Evidence) -> Iterator[Violation]:
    """I4: after each transaction a job is in one place, so no two claims hold it.

    A held job is claimed again only after it was returned, taken back or suspended.
    """
    for job, moves in by_job(evidence.moves).items():
        for step in steps(moves):
            if len(step.spots) != 1:
                places = ", ".join(_name(*spot) for spot in step.spots) or "nowhere"
                yield Violation("I4", f"after transaction {step.tx} job {job} is in: {places}")
                break


def claims_are_fenced(evidence: Evidence) -> Iterator[Violation]:
    """I5: the claim ids of a job rise.

    A worker's outcome or transactional effect is recorded by the transaction that removes the job from its
    claim.
    """
    taken_out: dict[int, set[int]] = {}
    for job, moves in by_job(evidence.moves).items():
        last = 0
        for step in steps(moves):
            out = {move.claim for move in step.left if move.place == "claim"}
            if out:
                taken_out.setdefault(job, set()).add(step.tx)
            for move in step.entered:
                if move.place == "claim" and move.claim is not None:
                    if move.claim <= last:
                        yield Violation(
                            "I5", f"job {job} went from claim {last} to claim {move.claim}"
                        )
                    last = move.claim
                elif move.place == "outcome" and move.claim is not None and move.claim not in out:
                    yield Violation(
                        "I5", f"job {job} ended under claim {move.claim}, which did not hold it"
                    )
    for effect in evidence.effects:
        if effect.tx not in taken_out.get(effect.job, ()):
            yield Violation("I5", f"an effect of job {effect.job} by who did not hold it then")


def dead_workers_claim_nothing(evidence: Evidence) -> Iterator[Violation]:
    """I5: a worker that was declared dead or has stopped claims no more jobs.

    Jobs it already held may be split into separate claims until they are taken back.
    """
    gone = {each.worker: each.at for each in evidence.presence if each.state in ("dead", "stopped")}
    for job, moves in by_job(evidence.moves).items():
        for step in steps(moves):
            if any(move.place == "claim" for move in step.left):
                continue
            for move in step.entered:
                if move.place == "claim" and move.worker in gone:
                    late = move.began - gone[move.worker]
                    if late > RACE:
                        yield Violation(
                            "I5", f"worker {move.worker} took job {job} {late:.1f} s after its end"
                        )


def within_budget(evidence: Evidence) -> Iterator[Violation]:
    """I9: no job has more attempts, or kills more workers, than its task allows."""
    tried: Counter[int] = Counter()
    killed: Counter[int] = Counter()
    for line in evidence.lines:
        if line.what == "invoke":
            tried[line.job] = max(tried[line.job], line.said["attempt"])
            killed[line.job] += bool(line.said.get("deadly"))
    for job in evidence.jobs.values():
        budget = evidence.budgets.get(job.task)
        if budget is None:
            continue
        outcome = evidence.outcomes.get(job.id)
        attempt = max(tried[job.id], outcome.attempt if outcome else 0)
        if attempt > budget.attempts:
            yield Violation(
                "I9", f"job {job.id} ({job.task}) came to attempt {attempt} of {budget.attempts}"
            )
        if killed[job.id] > budget.crashes:
            yield Violation(
                "I9", f"job {job.id} ({job.task}) was the death of {killed[job.id]} workers"
            )


def _name(place: str, claim: int) -> str:
    return place if not claim else f"{place} {claim}"


CHECKS = (
    nothing_lost,
    effects_once,
    one_outcome,
    one_place,
    claims_are_fenced,
    dead_workers_claim_nothing,
    within_budget,
)
