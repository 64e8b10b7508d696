"""Invariants of jobs with predecessors: limits, order, release and final counts. I6, I7, I8 and I15."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .evidence import Evidence, Job, Violation

OPEN = ("queued", "sleeping", "claim")


def limits_kept(evidence: Evidence) -> Iterator[Violation]:
    """I6: open calls of a job stay within its limit, and running jobs of a process within its slots."""
    yield from _calls_within_limits(evidence)
    running: dict[str, set[int]] = {}
    for line in evidence.lines:
        if line.what == "invoke" and not line.said.get("parks"):
            here = running.setdefault(line.who, set())
            here.add(line.job)
            if len(here) > evidence.capacity:
                yield Violation("I6", f"{line.who} ran {len(here)} jobs at once")
                return
        elif line.what in ("ok", "fail", "stopped"):
            running.get(line.who, set()).discard(line.job)


def _calls_within_limits(evidence: Evidence) -> Iterator[Violation]:
    run_of: dict[int, int] = {}
    allowed: dict[int, int] = {}
    for run in evidence.runs.values():
        parent = evidence.jobs.get(run.parent) if run.parent is not None else None
        budget = evidence.budgets.get(parent.task) if parent else None
        if budget is not None and budget.limit is not None:
            allowed[run.id] = budget.limit
            run_of.update(dict.fromkeys(run.jobs, run.id))
    # By transaction: the one that ends a call releases the next one.
    changes: Counter[tuple[int, int]] = Counter()
    order: dict[tuple[int, int], int] = {}
    for move in evidence.moves:
        if move.place in OPEN and move.job in run_of:
            key = (move.tx, run_of[move.job])
            changes[key] += 1 if move.enters else -1
            order[key] = move.id
    loose: Counter[int] = Counter()
    for key in sorted(changes, key=order.__getitem__):
        run_id = key[1]
        loose[run_id] += changes[key]
        if loose[run_id] > allowed[run_id]:
            yield Violation(
                "I6", f"{loose[run_id]} calls of run {run_id} at once, of {allowed[run_id]}"
            )


def predecessors_first(evidence: Evidence) -> Iterator[Violation]:
    """I7: a job is first claimed after each of its predecessors has its outcome."""
    taken: dict[int, int] = {}
    ended: dict[int, int] = {}
    for move in evidence.moves:
        if move.enters and move.place == "claim":
            taken.setdefault(move.job, move.id)
        elif move.enters and move.place == "outcome":
            ended.setdefault(move.job, move.id)
    for job in evidence.jobs.values():
        for child in job.children:
            if child in taken and taken[child] < ended.get(job.id, taken[child] + 1):
                yield Violation("I7", f"job {child} was taken before job {job.id} had ended")


def released_once(evidence: Evidence) -> Iterator[Violation]:
    """I8: a waiting job is released once."""
    let_go = Counter(
        move.job for move in evidence.moves if move.place == "waiting" and not move.enters
    )
    for job, count in let_go.items():
        if count > 1:
            yield Violation("I8", f"job {job} was released {count} times")


def counters_agree(evidence: Evidence) -> Iterator[Violation]:
    """I15: counters of waiting jobs equal the number of their open predecessors.

    The state of a run follows from the states of its jobs.
    """
    parents: Counter[int] = Counter()
    for job in evidence.jobs.values():
        if job.id not in evidence.outcomes:
            parents.update(job.children)
    for run in evidence.runs.values():
        if run.id not in evidence.outcomes:
            parents.update(run.children)
    for waiter, counted in evidence.waiting.items():
        if counted != parents[waiter]:
            yield Violation(
                "I15", f"{waiter} waits for {counted} others, of which {parents[waiter]} are open"
            )
    for run in evidence.runs.values():
        outcome = evidence.outcomes.get(run.id)
        if outcome is None:
            continue
        jobs = [evidence.jobs[job] for job in run.jobs if job in evidence.jobs]
        wanted = _expected_run_state(evidence, jobs)
        if outcome.state != wanted:
            yield Violation("I15", f"run {run.id} is {outcome.state}, its jobs say {wanted}")


def _expected_run_state(evidence: Evidence, jobs: list[Job]) -> str:
    states = {
        evidence.outcomes[job.id].state if job.id in evidence.outcomes else "open" for job in jobs
    }
    for bad, means in (
        ("open", "open"),
        ("failed", "failed"),
        ("expired", "failed"),
        ("cancelled", "cancelled"),
    ):
        if bad in states:
            return means
    return "succeeded"


CHECKS = (limits_kept, predecessors_first, released_once, counters_agree)
