"""Each check finds its violation in a history made by hand, and none in a correct history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from msgspec import structs

from chaos import durability
from chaos.checker import CHECKS, check
from chaos.evidence import (
    Budget,
    Effect,
    Evidence,
    Fault,
    Job,
    Move,
    Outcome,
    ProcessExit,
    Run,
    Sample,
    WorkerStateChange,
)
from chaos.history import Line


class Record:
    """Moves as the audit records them, one transaction per call."""

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self._tx = count(100)

    def move(self, job: int, *parts: tuple[str, bool, dict[str, Any]], at: float = 1.0) -> int:
        tx = next(self._tx)
        for place, enters, said in parts:
            self.moves.append(Move(len(self.moves) + 1, tx, at, at, place, enters, job, **said))
        return tx

    def start(self, job: int) -> None:
        self.move(job, ("queued", True, {}))

    def take(self, job: int, claim: int, worker: int = 1, at: float = 1.0) -> None:
        self.move(
            job,
            ("queued", False, {}),
            ("claim", True, {"claim": claim, "worker": worker, "attempt": 1}),
            at=at,
        )

    def reap(self, job: int, claim: int, worker: int = 1, at: float = 1.0) -> None:
        self.move(
            job,
            ("queued", True, {}),
            ("claim", False, {"claim": claim, "worker": worker}),
            at=at,
        )

    def end(self, job: int, claim: int, worker: int = 1, *, of: int | None = None) -> int:
        return self.move(
            job,
            ("outcome", True, {"claim": claim, "worker": worker, "state": "succeeded"}),
            ("claim", False, {"claim": of or claim, "worker": worker}),
        )


def correct_history() -> Evidence:
    """Return a correct history.

    Job 1 is claimed, taken back, claimed again and finished with its effect; jobs 2 and 3 are a flow, run
    9.
    """
    record = Record()
    record.start(1)
    record.take(1, 10)
    record.reap(1, 10, at=12.0)
    record.take(1, 11, worker=2, at=12.5)
    tx = record.end(1, 11, worker=2)
    record.move(9, ("waiting", True, {}))
    record.move(3, ("waiting", True, {}))
    record.start(2)
    record.take(2, 12)
    record.end(2, 12)
    record.move(3, ("waiting", False, {}), ("queued", True, {}))
    record.take(3, 13)
    record.end(3, 13)
    record.move(9, ("waiting", False, {}), ("outcome", True, {"state": "succeeded"}))
    return Evidence(
        moves=record.moves,
        jobs={
            1: Job(1, "effect"),
            2: Job(2, "part", 9, (3,)),
            3: Job(3, "part", 9, (9,)),
        },
        runs={9: Run(9, (2, 3))},
        outcomes={
            1: Outcome(1, "succeeded", 1, 11, 2),
            2: Outcome(2, "succeeded", 1, 12, 1),
            3: Outcome(3, "succeeded", 1, 13, 1),
            9: Outcome(9, "succeeded", 1),
        },
        effects=[Effect(1, tx, 1.0, 1, 1)],
        presence=[
            WorkerStateChange(1, 0.0, 1, 501, "active"),
            WorkerStateChange(2, 0.0, 2, 502, "active"),
            WorkerStateChange(3, 12.0, 1, 501, "dead"),
            WorkerStateChange(4, 14.0, 3, 503, "active"),
            WorkerStateChange(5, 15.0, 3, 503, "draining"),
            WorkerStateChange(6, 16.0, 3, 503, "stopped"),
        ],
        lines=[
            history_line("a", "up", 0.0, pid=501),
            history_line("a", "invoke", 1.0, job=1, attempt=1),
            history_line("a", "tick", 9.0, job=1, attempt=1),
            history_line("b", "up", 0.0, pid=502),
            history_line("b", "invoke", 12.6, job=1, attempt=1),
            history_line("b", "ok", 12.7, job=1, attempt=1),
        ],
        acknowledged=frozenset({1, 9}),
        budgets={"effect": Budget(3, 3, effect=True), "part": Budget(3, 3)},
        faults=[Fault("kill", 10.0, 10.0, pid=501, slot=0)],
        ended=[ProcessExit(501, 0, 10.0, -9, False), ProcessExit(503, 2, 16.1, 0, True)],
        crew={1: 502},
        quiet_at=20.0,
        quiet_took=1.0,
        capacity=2,
    )


def history_line(who: str, what: str, at: float, **rest: Any) -> Line:
    return Line(who, at, at, what, rest)


def with_moves(*extra: Callable[[Record], object]) -> Callable[[Evidence], Evidence]:
    """Add moves to the end of the correct history."""

    def change(evidence: Evidence) -> Evidence:
        record = Record()
        record.moves = list(evidence.moves)
        record._tx = count(1000)
        for each in extra:
            each(record)
        return replace(evidence, moves=record.moves)

    return change


def without_outcome(evidence: Evidence, job: int) -> Evidence:
    left = {id: outcome for id, outcome in evidence.outcomes.items() if id != job}
    return replace(evidence, outcomes=left)


def with_job(evidence: Evidence, *jobs: Job, **rest: Any) -> Evidence:
    """Add jobs that have an outcome row but no moves."""
    outcomes = {job.id: Outcome(job.id, "succeeded", 1) for job in jobs}
    return replace(
        evidence,
        jobs={**evidence.jobs, **{job.id: job for job in jobs}},
        outcomes={**evidence.outcomes, **outcomes},
        **rest,
    )


def with_lines(evidence: Evidence, lines: Iterable[Line]) -> Evidence:
    return replace(evidence, lines=sorted([*evidence.lines, *lines], key=lambda line: line.at))


def calls_at_once(evidence: Evidence) -> Evidence:
    """Release three calls of job 1, where two are allowed."""
    record = Record()
    record.moves = list(evidence.moves)
    record._tx = count(1000)
    for job in (21, 22, 23):
        record.start(job)
    return replace(
        evidence,
        moves=record.moves,
        runs={**evidence.runs, 20: Run(20, (21, 22, 23), parent=1)},
        budgets={**evidence.budgets, "effect": Budget(3, 3, effect=True, limit=2)},
    )


def dead_and_alive(evidence: Evidence) -> Evidence:
    """Worker 1 was only frozen, wakes at 13 and still runs the job that was taken back at 12."""
    return with_lines(
        replace(evidence, faults=[Fault("freeze", 8.0, 13.0, pid=501)]),
        [history_line("a", "tick", at, job=1, attempt=1) for at in (13.1, 14.0, 17.0)],
    )


BAD: list[tuple[str, str, Callable[[Evidence], Evidence]]] = [
    ("I1", "acknowledged", lambda e: replace(e, acknowledged=frozenset({1, 77}))),
    ("I1", "job 2 .* without an outcome", lambda e: without_outcome(e, 2)),
    ("I1", "run 9 has not ended", lambda e: without_outcome(e, 9)),
    ("I1", "in quarantine", lambda e: replace(without_outcome(e, 1), quarantined=frozenset({1}))),
    ("I2", "2 effects", lambda e: replace(e, effects=[*e.effects, *e.effects])),
    ("I2", "0 effects", lambda e: replace(e, effects=[])),
    ("I2", "which is none", lambda e: replace(e, effects=[*e.effects, Effect(2, 1, 1.0, 55, 1)])),
    ("I3", "2 outcomes", with_moves(lambda r: r.move(1, ("outcome", True, {"state": "failed"})))),
    ("I3", "changed or removed", with_moves(lambda r: r.move(1, ("outcome", False, {})))),
    ("I3", "outcome of job 1 is gone", lambda e: without_outcome(e, 1)),
    ("I3", "nobody saw job 5 end", lambda e: with_job(e, Job(5, "part"))),
    (
        "I4",
        "in: claim 20, claim 21",
        with_moves(
            lambda r: r.start(4),
            lambda r: r.take(4, 20),
            lambda r: r.move(4, ("claim", True, {"claim": 21, "worker": 2})),
        ),
    ),
    (
        "I4",
        "nowhere",
        with_moves(lambda r: r.start(4), lambda r: r.move(4, ("queued", False, {}))),
    ),
    (
        "I4",
        "in: outcome, queued",
        with_moves(lambda r: r.move(1, ("queued", True, {}))),
    ),
    (
        "I5",
        "from claim 20 to claim 19",
        with_moves(
            lambda r: r.start(4),
            lambda r: r.take(4, 20),
            lambda r: r.reap(4, 20),
            lambda r: r.take(4, 19),
        ),
    ),
    (
        "I5",
        "under claim 20, which did not hold it",
        with_moves(
            lambda r: r.start(4),
            lambda r: r.take(4, 20),
            lambda r: r.reap(4, 20),
            lambda r: r.take(4, 21, 2),
            lambda r: r.end(4, 20, 1, of=21),
        ),
    ),
    ("I5", "did not hold it then", lambda e: replace(e, effects=[Effect(1, 1, 1.0, 1, 1)])),
    (
        "I5",
        "worker 1 took job 4 8.0 s after its end",
        with_moves(lambda r: r.start(4), lambda r: r.take(4, 20, 1, at=20.0)),
    ),
    ("I5", "a still ran job 1 4.0 s after", dead_and_alive),
    ("I6", "3 calls of run 20 at once", calls_at_once),
    (
        "I6",
        "b ran 3 jobs at once",
        lambda e: with_lines(
            e, [history_line("b", "invoke", 13.0, job=job, attempt=1) for job in (61, 62, 63)]
        ),
    ),
    (
        "I7",
        "job 3 was taken before job 2",
        lambda e: replace(
            e, moves=[structs.replace(m, id=m.id - 1000 * (m.job == 3)) for m in e.moves]
        ),
    ),
    (
        "I8",
        "released 2 times",
        with_moves(lambda r: r.move(3, ("waiting", False, {}), ("queued", True, {}))),
    ),
    (
        "I9",
        "attempt 4 of 3",
        lambda e: with_lines(e, [history_line("b", "invoke", 13.0, job=1, attempt=4)]),
    ),
    (
        "I9",
        "the death of 4 workers",
        lambda e: with_lines(
            e,
            [
                history_line("b", "invoke", 13.0 + n, job=1, attempt=1, deadly=True)
                for n in range(4)
            ],
        ),
    ),
    ("I14", "ended with -9", lambda e: replace(e, ended=[ProcessExit(503, 2, 16.1, -9, True)])),
    (
        "I14",
        "worker 3 took job 4",
        with_moves(lambda r: r.start(4), lambda r: r.take(4, 20, 3, at=17.0)),
    ),
    (
        "I14",
        "worker 3 left with 1 jobs",
        with_moves(lambda r: r.start(4), lambda r: r.take(4, 20, 3, at=14.5)),
    ),
    ("I15", "waits for 2 others, of which 0", lambda e: replace(e, waiting={3: 2})),
    (
        "I15",
        "run 9 is succeeded, its jobs say failed",
        lambda e: replace(e, outcomes={**e.outcomes, 3: Outcome(3, "failed", 1)}),
    ),
    ("I16", "1 deadlocks", lambda e: replace(e, deadlocks=1)),
    (
        "I16",
        "idle in transaction for 2.5 s",
        lambda e: replace(e, samples=[Sample(30.0, 1, "rota", "idle in transaction", 2.5, "x")]),
    ),
    (
        "I16",
        "active for 1.5 s",
        lambda e: replace(e, samples=[Sample(30.0, 1, "rota", "active", 1.5, "x")]),
    ),
    ("I17", "not quiet within", lambda e: replace(e, quiet_took=99.0, left={"queued": 3})),
    ("I17", "3 left in queued", lambda e: replace(e, left={"queued": 3})),
    ("I17", "process 777", lambda e: replace(e, crew={0: 777})),
    ("I18", "declared dead, and it lived", lambda e: replace(e, faults=[])),
    (
        "I18",
        "declared dead, and it lived",
        lambda e: replace(e, faults=[Fault("crash", 8.0, 13.0)]),
    ),
    (
        "I18",
        "declared dead, and it lived",
        lambda e: replace(e, faults=[Fault("kill", 8.0, 13.0, pid=502)]),
    ),
    (
        "I18",
        "declared dead, and it lived",
        lambda e: replace(e, faults=[Fault("starved", 9.0, 9.3, pid=501)]),
    ),
    ("I18", "p99 of 1 recoveries is 2.5 s", lambda e: replace(e, recovery_target=2.0)),
]


def test_checker_correct_history_has_no_violation() -> None:
    assert check(correct_history()) == []


@pytest.mark.parametrize(("invariant", "text", "spoil"), BAD)
def test_checker_faulty_history_violates_its_invariant(
    invariant: str, text: str, spoil: Callable[[Evidence], Evidence]
) -> None:
    found = check(spoil(correct_history()))
    assert [each for each in found if each.invariant == invariant and re.search(text, each.text)]


def test_checker_each_check_has_a_failing_example() -> None:
    checks = set(CHECKS) - set(durability.CHECKS)  # test_durability.py covers these
    finding = {
        each.__name__
        for each in checks
        for _, _, spoil in BAD
        if list(each(spoil(correct_history())))
    }
    assert finding == {each.__name__ for each in checks}


def test_checker_worker_without_processor_time_may_be_declared_dead() -> None:
    starved = Fault("starved", 10.0, 11.8, pid=501)
    assert check(replace(correct_history(), faults=[starved])) == []


def test_checker_cut_connection_explains_death_only_on_busy_machine() -> None:
    broken = Fault("cut", 10.0, 10.0)
    assert check(replace(correct_history(), faults=[broken, Fault("busy", 10.0, 11.0)])) == []
    assert check(replace(correct_history(), faults=[broken]))
    assert check(replace(correct_history(), faults=[Fault("busy", 10.0, 11.0)]))


def test_checker_place_entered_and_left_in_one_transaction_is_ignored() -> None:
    """A sleeping job is woken and claimed in one transaction."""
    evidence = with_moves(
        lambda r: r.move(4, ("sleeping", True, {})),
        lambda r: r.move(
            4,
            ("sleeping", False, {}),
            ("queued", True, {}),
            ("queued", False, {}),
            ("claim", True, {"claim": 30, "worker": 2}),
        ),
    )(correct_history())
    assert check(evidence) == []


def test_checker_job_moved_to_split_claim_is_held_once() -> None:
    evidence = with_moves(
        lambda r: r.start(4),
        lambda r: r.take(4, 20, 2),
        lambda r: r.move(
            4,
            ("claim", True, {"claim": 21, "worker": 2}),
            ("claim", False, {"claim": 20, "worker": 2}),
        ),
    )(correct_history())
    assert check(evidence) == []
