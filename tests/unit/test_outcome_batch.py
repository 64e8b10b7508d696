"""Batches of finished attempts: groups by kind of outcome, claims and splitting."""

from __future__ import annotations

from typing import Any

import pytest

from rota.engine.worker.outcomes import (
    KINDS,
    FinishedAttempt,
    OutcomeBatch,
    read_answers,
    transactions_for,
)
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
from rota.store.jobs import RECORDED_CLAIM, ClaimedJob, MoveResult


def attempt(job: int, outcome: Outcome, claim: int = 9) -> FinishedAttempt[Any]:
    claimed = ClaimedJob(claim, job, 1, 0, 0, job, "work", "default", "{}", None, None, None, None)
    return FinishedAttempt(claimed, outcome, 0.1)


MIXED = OutcomeBatch(
    [
        attempt(1, Returned()),
        attempt(2, Succeeded(None)),
        attempt(3, AlreadyRecorded(), RECORDED_CLAIM),
        attempt(4, Retried(1.0, "{}")),
        attempt(5, Succeeded(None), claim=10),
        attempt(6, FinalOutcome("failed", "{}")),
    ]
)


def test_batch_groups_follow_the_order_of_the_table() -> None:
    """The order is that of locks: successes are recorded first."""
    found = [[each.job.job for each in group] for _, group in MIXED.groups()]
    assert found == [[2, 5], [6], [4], [1], [3]]
    assert next(iter(KINDS)) is Succeeded


def test_batch_has_one_transaction_per_kind_but_none_for_recorded_ones() -> None:
    statements = [
        [query.statement for query in each] for each in transactions_for(worker=7, batch=MIXED)
    ]
    assert statements == [
        ["job/complete"],
        ["job/finish"],
        ["job/retry"],
        ["job/return_to_queue"],
    ]


@pytest.mark.parametrize(
    ("outcome", "answered", "refused"),
    [
        (Succeeded(None), [1], [1]),
        (Succeeded(None), [], []),
        (FinalOutcome("failed", "{}"), [], [1]),
        (FinalOutcome("failed", "{}"), [1], []),
        (Retried(1.0, "{}"), [], [1]),
        (Rejected("failed", "{}"), [], [1]),
        (Quarantined("{}"), [], [1]),
        (Suspended((), ()), [], []),
        (Restarted("{}"), [], []),
        (Returned(), [], []),
    ],
)
def test_batch_answer_without_a_final_outcome_is_a_refusal(
    outcome: Outcome, answered: list[int], refused: list[int]
) -> None:
    """`job/complete` answers with the jobs it refused, the other statements with those accepted."""
    batch = OutcomeBatch([attempt(1, outcome)])

    result = read_answers(batch, [[[MoveResult(answered, ["default"], [5], True)]]])

    assert result.refused == refused
    assert (result.queues, result.runs, result.pending) == ({"default"}, [5], True)


def test_batch_claims_leave_out_recorded_jobs() -> None:
    assert MIXED.claims() == {9, 10}


def test_batch_split_keeps_attempts_that_are_recorded_already() -> None:
    """They are still to be counted and published after the batch failed as a whole."""
    assert [[each.job.job for each in single.attempts] for single in MIXED.split()] == [
        *([1], [2], [3]),
        *([4], [5], [6]),
    ]


def test_empty_batch_is_false() -> None:
    assert not OutcomeBatch()
    assert MIXED
