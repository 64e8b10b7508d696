"""Prefetch: how many jobs a worker claims beyond its free slots, from measurements alone."""

from __future__ import annotations

import pytest

from rota.engine.worker.claim_planner import ALLOWED_WAIT_SECONDS, Prefetch


def warm(pace: Prefetch, rounds: int = 20) -> Prefetch:
    """Simulate jobs so short that all slots are idle when the answer to a claim arrives."""
    for _ in range(rounds):
        pace.on_claim(idle_slots=100, seconds=0.002, is_full=True)
    return pace


def test_prefetch_after_first_claim_is_zero() -> None:
    pace = Prefetch(100, 1000)

    pace.on_claim(idle_slots=100, seconds=0.002, is_full=True)

    assert pace.count == 0, "its places were empty because nothing had been asked for yet"


def test_prefetch_idle_slots_raise_count_to_the_limit() -> None:
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
def test_prefetch_busy_slots_or_empty_queue_keep_count_zero(answer: dict[str, int]) -> None:
    pace = Prefetch(100, 1000)

    for _ in range(8):
        pace.on_claim(seconds=0.002, **answer)  # type: ignore[arg-type]

    assert pace.count == 0


def test_prefetch_long_waits_lower_count_to_zero() -> None:
    pace = warm(Prefetch(100, 1000))
    seen = []
    for _ in range(12):
        pace.on_wait(1.0)
        seen.append(pace.count)

    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0


def test_prefetch_allowed_wait_keeps_the_count() -> None:
    pace = warm(Prefetch(100, 1000))

    pace.on_wait(ALLOWED_WAIT_SECONDS)

    assert pace.count == 1000


def test_prefetch_slow_claims_allow_longer_waits() -> None:
    pace = Prefetch(100, 1000)
    for _ in range(20):
        pace.on_claim(idle_slots=100, seconds=0.5, is_full=True)

    pace.on_wait(1.0)

    assert pace.count == 1000


def test_prefetch_count_never_exceeds_the_limit() -> None:
    assert warm(Prefetch(100, 0)).count == 0
    assert warm(Prefetch(1, 3)).count == 3
