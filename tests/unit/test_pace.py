"""Pace: how many jobs a worker holds beyond those that run, from what is seen and nothing else."""

from __future__ import annotations

import pytest

from rota.model.pace import PATIENCE, Pace


def warm(pace: Pace, rounds: int = 20) -> Pace:
    """As with jobs so short that all places are empty when an answer comes."""
    for _ in range(rounds):
        pace.answered(idle=100, took=0.002, full=True)
    return pace


def test_a_worker_that_has_just_started_holds_what_it_can_run() -> None:
    pace = Pace(100, 1000)

    pace.answered(idle=100, took=0.002, full=True)

    assert pace.ahead == 0, "its places were empty because nothing had been asked for yet"


def test_short_jobs_make_it_hold_more_up_to_the_most() -> None:
    pace = Pace(100, 1000)
    seen = []
    for _ in range(8):
        pace.answered(idle=100, took=0.002, full=True)
        seen.append(pace.ahead)

    assert seen == sorted(seen)
    assert seen[1] > 0
    assert seen[-1] == 1000


@pytest.mark.parametrize(
    "answer",
    [{"idle": 0, "full": True}, {"idle": 100, "full": False}],
    ids=["busy", "no more work"],
)
def test_it_holds_no_more_when_that_would_not_help(answer: dict[str, int]) -> None:
    pace = Pace(100, 1000)

    for _ in range(8):
        pace.answered(took=0.002, **answer)  # type: ignore[arg-type]

    assert pace.ahead == 0


def test_jobs_that_had_to_wait_make_it_hold_less_until_it_holds_none() -> None:
    pace = warm(Pace(100, 1000))
    seen = []
    for _ in range(12):
        pace.waited(1.0)
        seen.append(pace.ahead)

    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0


def test_waiting_for_a_few_answers_is_no_reason_to_hold_less() -> None:
    pace = warm(Pace(100, 1000))

    pace.waited(PATIENCE)

    assert pace.ahead == 1000


def test_on_a_slow_network_jobs_may_wait_longer() -> None:
    pace = Pace(100, 1000)
    for _ in range(20):
        pace.answered(idle=100, took=0.5, full=True)

    pace.waited(1.0)

    assert pace.ahead == 1000


def test_it_never_holds_more_than_allowed() -> None:
    assert warm(Pace(100, 0)).ahead == 0
    assert warm(Pace(1, 3)).ahead == 3
