"""Retry policy: the number of attempts and the delays between them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota import Retry, RetryLater
from rota.errors import DefinitionError

seconds = some.floats(0, 1e6)
policies = some.builds(
    Retry,
    max_attempts=some.integers(1, 30_000),
    delay=seconds,
    backoff=some.floats(1, 1000),
    max_delay=seconds,
    jitter=some.floats(0, 1),
)


def middle(low: float, high: float) -> float:
    return (low + high) / 2


@given(policies, some.integers(1, 40_000))
def test_there_is_another_attempt_until_they_are_used_up(policy: Retry, attempt: int) -> None:
    assert (policy.delay_after(attempt, ValueError()) is None) == (attempt >= policy.max_attempts)


@given(policies, some.integers(1, 40_000))
def test_a_pause_is_a_number_from_zero_to_the_cap(policy: Retry, attempt: int) -> None:
    """This includes high attempts, where the power alone would overflow a float."""
    pause = policy.delay_after(attempt, ValueError())

    assert pause is None or 0 <= pause <= float(policy.max_delay)  # type: ignore[arg-type]


def test_a_steep_back_off_ends_at_the_cap_too() -> None:
    assert (
        Retry(max_attempts=100, backoff=1e6, max_delay=60, jitter=0).delay_after(70, ValueError())
        == 60
    )


@given(policies.filter(lambda policy: policy.max_attempts > 2))
def test_pauses_do_not_shrink_from_one_attempt_to_the_next(policy: Retry) -> None:
    pauses = [
        pause
        for attempt in range(1, min(policy.max_attempts, 100))
        if (pause := policy.delay_after(attempt, ValueError(), middle)) is not None
    ]

    assert pauses == sorted(pauses)


@given(policies, some.integers(1, 100), some.randoms())
def test_a_pause_is_off_by_no_more_than_the_jitter(
    policy: Retry, attempt: int, random: object
) -> None:
    exact = policy.delay_after(attempt, ValueError(), middle)
    pause = policy.delay_after(attempt, ValueError(), random.uniform)  # type: ignore[attr-defined]

    if exact is not None and pause is not None:
        # If `max_delay` already cut the exact delay, the jitter can only shorten it.
        assert pause >= exact * (1 - policy.jitter) * (1 - 1e-9)
        assert pause <= exact * (1 + policy.jitter) * (1 + 1e-9)


def test_the_default_waits_one_second_then_two() -> None:
    waits = [Retry(jitter=0).delay_after(attempt, ValueError()) for attempt in (1, 2, 3)]

    assert waits == [1.0, 2.0, None]


def test_durations_can_be_timedeltas() -> None:
    policy = Retry(
        max_attempts=9, delay=timedelta(minutes=1), max_delay=timedelta(minutes=3), jitter=0
    )

    assert [policy.delay_after(attempt, ValueError()) for attempt in (1, 2, 3, 4)] == [
        60,
        120,
        180,
        180,
    ]


def test_jobs_that_failed_together_do_not_come_back_together() -> None:
    pauses = {Retry(max_attempts=2).delay_after(1, ValueError()) for _ in range(50)}

    assert len(pauses) > 40


def test_errors_that_are_never_retried_end_the_job_at_once() -> None:
    policy = Retry(max_attempts=9, non_retryable=(LookupError, OSError))

    assert policy.delay_after(1, KeyError()) is None
    assert policy.delay_after(1, ConnectionError()) is None
    assert policy.delay_after(1, ValueError()) is not None


def test_never_can_be_any_collection_of_types() -> None:
    assert Retry(non_retryable=[KeyError]).non_retryable == (KeyError,)  # type: ignore[arg-type]


def test_a_task_can_say_when_to_try_again() -> None:
    assert Retry(max_delay=1).delay_after(1, RetryLater(90)) == 90
    assert Retry().delay_after(1, RetryLater(timedelta(hours=1))) == 3600
    assert Retry().delay_after(1, RetryLater(-5)) == 0


def test_asking_for_another_attempt_counts_as_one() -> None:
    assert Retry(max_attempts=2).delay_after(2, RetryLater(1)) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_attempts": 0}, r"max_attempts=0.*from 1 \(no retry\) to 30000"),
        ({"max_attempts": 30_001}, "max_attempts=30001"),
        ({"delay": -1}, "must be 0 or more"),
        ({"max_delay": timedelta(seconds=-1)}, "must be 0 or more"),
        ({"backoff": 0.5}, "backoff=0.5.*at least 1"),
        ({"jitter": 1.1}, "jitter=1.1.*from 0 to 1"),
        ({"delay": float("nan")}, "delay"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Retry(**given)  # type: ignore[arg-type]


@given(policies)
def test_a_policy_can_be_stored_and_read(policy: Retry) -> None:
    assert Retry(**policy.to_dict()) == policy
