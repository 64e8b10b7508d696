"""Counters: each job counts once, by queue and task, and the number of counters is bounded."""

from __future__ import annotations

from typing import Any, get_args

from rota.engine.telemetry.counters import MAX_QUEUE_TASKS, OTHER, Counters, ProcessCounters
from rota.engine.telemetry.event_bus import EventBus
from rota.engine.worker.outcomes import KINDS, FinishedAttempt, OutcomeBatch, publish
from rota.model.outcome import (
    AlreadyRecorded,
    Discarded,
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
from rota.store.jobs import ClaimedJob


def job(number: int, task: str = "work", queue: str = "default", waited: float = 0.5) -> ClaimedJob:
    one: Any = ClaimedJob(1, number, 1, 0, 0, number, task, queue, "{}", None, None, None, None)
    one.queued_seconds = waited
    claimed: ClaimedJob = one
    return claimed


ERROR = '{"type": "ValueError", "message": "", "traceback": "", "attempt": 1}'


def count(
    meters: Counters, *attempts: FinishedAttempt[Any], refused: set[int] | None = None
) -> None:
    publish(1, OutcomeBatch(attempts), refused or set(), meters, EventBus())


def attempts(*ended: tuple[Outcome, float]) -> list[FinishedAttempt[Any]]:
    return [
        FinishedAttempt(job(number), outcome, seconds)
        for number, (outcome, seconds) in enumerate(ended, 1)
    ]


def test_outcome_table_has_every_outcome_but_discarded() -> None:
    """A discarded attempt is not recorded."""
    assert set(KINDS) == set(get_args(Outcome)) - {Discarded}


def test_counters_count_each_outcome_by_its_kind() -> None:
    meters = Counters()
    count(
        meters,
        *attempts(
            (Succeeded(None), 0.1),
            (Succeeded(None), 0.2),
            (FinalOutcome("failed", ERROR), 0.3),
            (FinalOutcome("expired", None), 0.0),
            (Retried(1.0, ERROR), 0.4),
            (Quarantined(ERROR), 0.0),
            (Rejected("cancelled", ERROR), 0.0),
            (Returned(), 0.0),
            (AlreadyRecorded(), 0.5),
            (Suspended((), ()), 0.3),
            (Restarted("{}"), 0.3),
        ),
    )
    line = meters.by_task["default", "work"]

    assert (line.succeeded, line.failed, line.expired, line.retried) == (3, 1, 1, 1)
    assert (line.quarantined, line.cancelled, line.returned, line.suspended) == (1, 1, 1, 2)
    # Jobs that never began are left out: they would lower the mean duration.
    assert line.durations.count == 7
    assert abs(line.durations.total - 2.1) < 1e-9


def test_counters_refused_outcome_counts_only_as_refused() -> None:
    meters = Counters()
    count(
        meters,
        *(FinishedAttempt(job(number), Succeeded(None), 0.1) for number in range(20)),
        FinishedAttempt(job(30), FinalOutcome("failed", ERROR), 0.1),
        FinishedAttempt(job(31), Retried(1.0, ERROR), 0.1),
        refused={3, 4, 30, 31},
    )

    assert meters.refused == 4
    line = meters.by_task["default", "work"]
    assert (line.succeeded, line.failed, line.retried, line.durations.count) == (18, 0, 0, 18)


def test_counters_batch_is_split_by_queue_and_task() -> None:
    meters = Counters()
    jobs = [job(number, f"task{number % 3}", f"queue{number % 2}") for number in range(60)]
    meters.count_claim(jobs)
    count(meters, *(FinishedAttempt(each, Succeeded(None), 0.1) for each in jobs))

    assert len(meters.by_task) == 6
    assert {line.claimed for line in meters.by_task.values()} == {10}
    assert {line.succeeded for line in meters.by_task.values()} == {10}
    assert (meters.claims_with_jobs, meters.empty_claims, meters.claim_sizes.count) == (1, 0, 1)


def test_counters_unknown_wait_time_is_left_out() -> None:
    meters = Counters()
    meters.count_claim([job(1, waited=-1.0), *(job(number) for number in range(2, 20))])
    line = meters.by_task["default", "work"]

    assert (line.claimed, line.wait_times.count) == (19, 18)
    assert abs(line.wait_times.total - 9.0) < 1e-9


def test_counters_beyond_max_queue_tasks_count_as_other() -> None:
    meters = Counters()
    for number in range(MAX_QUEUE_TASKS + 50):
        meters.count_claim([job(number, f"task{number}")])

    assert len(meters.by_task) == MAX_QUEUE_TASKS + 1
    assert meters.by_task[OTHER].claimed == 50


def test_counters_ended_session_counts_once_in_sum() -> None:
    counted = ProcessCounters()
    one, two = counted.begin_session(), counted.begin_session()
    one.count_claim([job(1)])
    two.count_claim([job(2), job(3)])
    one.started["work"] += 1
    counted.end_session(one)
    counted.end_session(one)

    assert counted.sum().by_task["default", "work"].claimed == 3
    assert counted.sum().started == {"work": 1}
    two.count_claim([job(4)])
    assert counted.sum().by_task["default", "work"].claimed == 4


def test_counters_enqueued_beyond_maximum_count_as_other() -> None:
    counted = ProcessCounters()
    for number in range(MAX_QUEUE_TASKS + 7):
        counted.count_enqueued(("default", f"task{number}"), 2)

    assert len(counted.enqueued) == MAX_QUEUE_TASKS + 1
    assert counted.enqueued[OTHER] == 14
