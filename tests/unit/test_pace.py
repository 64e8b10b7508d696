"""Prefetch: how many jobs a worker claims beyond its free slots, from measurements alone."""

from __future__ import annotations

import pytest

from rota.engine.worker.claim_planner import ALLOWED_WAIT_SECONDS, Prefetch


def warm(pace: Prefetch, rounds: int = 20) -> Prefetch:
    """Simulate jobs so short that all slots are idle when the answer to a claim arrives."""
    for _ in range(rounds):
        pace.on_claim(idle_slots=100, seconds=0.002, is_full=True)
    return pace


def test_a_worker_that_has_just_started_holds_what_it_can_run() -> None:
    pace = Prefetch(100, 1000)

    pace.on_claim(idle_slots=100, seconds=0.002, is_full=True)

    assert pace.count == 0, "its places were empty because nothing had been asked for yet"


def test_short_jobs_make_it_hold_more_up_to_the_most() -> None:
    pace = Prefetch(100, 1000)
    seen = []
    for _ in range(8):
        pace.on_claim(idle_slots=100, seconds=0.002, is_full=True)
        seen.append(pace.count)

    assert seen == sorted(seen)
    assert seen[1] > 0
    assert seen[-1] == 1000


@pytest.mark.parametrize(
    "answer",
    [{"idle_slots": 0, "is_full": True}, {"idle_slots": 100, "is_full": False}],
    ids=["busy", "no more work"],
)
def test_it_holds_no_more_when_that_would_not_help(answer: dict[str, int]) -> None:
    pace = Prefetch(100, 1000)

    for _ in range(8):
        pace.on_claim(seconds=0.002, **answer)  # type: ignore[arg-type]

    assert pace.count == 0


def test_jobs_that_had_to_wait_make_it_hold_less_until_it_holds_none() -> None:
    pace = warm(Prefetch(100, 1000))
    seen = []
    for _ in range(12):
        pace.on_wait(1.0)
        seen.append(pace.count)

    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0


def test_waiting_for_a_few_answers_is_no_reason_to_hold_less() -> None:
    pace = warm(Prefetch(100, 1000))

    pace.on_wait(ALLOWED_WAIT_SECONDS)

    assert pace.count == 1000


def test_on_a_slow_network_jobs_may_wait_longer() -> None:
    pace = Prefetch(100, 1000)
    for _ in range(20):
        pace.on_claim(idle_slots=100, seconds=0.5, is_full=True)

    pace.on_wait(1.0)

    assert pace.count == 1000


def test_it_never_holds_more_than_allowed() -> None:
    assert warm(Prefetch(100, 0)).count == 0
    assert warm(Prefetch(1, 3)).count == 3
