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
def test_retry_delay_is_none_after_max_attempts(policy: Retry, attempt: int) -> None:
    assert (policy.delay_after(attempt, ValueError()) is None) == (attempt >= policy.max_attempts)


@given(policies, some.integers(1, 40_000))
def test_retry_delay_is_between_zero_and_max_delay(policy: Retry, attempt: int) -> None:
    """This includes high attempts, where the power alone would overflow a float."""
    pause = policy.delay_after(attempt, ValueError())

    assert pause is None or 0 <= pause <= float(policy.max_delay)  # type: ignore[arg-type]


def test_retry_steep_backoff_ends_at_max_delay() -> None:
    assert (
        Retry(max_attempts=100, backoff=1e6, max_delay=60, jitter=0).delay_after(70, ValueError())
        == 60
    )


@given(policies.filter(lambda policy: policy.max_attempts > 2))
def test_retry_delays_never_decrease(policy: Retry) -> None:
    pauses = [
        pause
        for attempt in range(1, min(policy.max_attempts, 100))
        if (pause := policy.delay_after(attempt, ValueError(), middle)) is not None
    ]

    assert pauses == sorted(pauses)


@given(policies, some.integers(1, 100), some.randoms())
def test_retry_delay_deviates_at_most_by_jitter(
    policy: Retry, attempt: int, random: object
) -> None:
    exact = policy.delay_after(attempt, ValueError(), middle)
    pause = policy.delay_after(attempt, ValueError(), random.uniform)  # type: ignore[attr-defined]

    if exact is not None and pause is not None:
        # If `max_delay` already cut the exact delay, the jitter can only shorten it.
        assert pause >= exact * (1 - policy.jitter) * (1 - 1e-9)
        assert pause <= exact * (1 + policy.jitter) * (1 + 1e-9)


def test_retry_default_delays_are_one_and_two_seconds() -> None:
    waits = [Retry(jitter=0).delay_after(attempt, ValueError()) for attempt in (1, 2, 3)]

    assert waits == [1.0, 2.0, None]


def test_retry_accepts_timedeltas() -> None:
    policy = Retry(
        max_attempts=9, delay=timedelta(minutes=1), max_delay=timedelta(minutes=3), jitter=0
    )

    assert [policy.delay_after(attempt, ValueError()) for attempt in (1, 2, 3, 4)] == [
        60,
        120,
        180,
        180,
    ]


def test_retry_default_jitter_spreads_delays() -> None:
    pauses = {Retry(max_attempts=2).delay_after(1, ValueError()) for _ in range(50)}

    assert len(pauses) > 40


def test_retry_non_retryable_error_gives_no_delay() -> None:
    policy = Retry(max_attempts=9, non_retryable=(LookupError, OSError))

    assert policy.delay_after(1, KeyError()) is None
    assert policy.delay_after(1, ConnectionError()) is None
    assert policy.delay_after(1, ValueError()) is not None


def test_retry_non_retryable_list_becomes_tuple() -> None:
    assert Retry(non_retryable=[KeyError]).non_retryable == (KeyError,)  # type: ignore[arg-type]


def test_retry_later_sets_the_delay() -> None:
    assert Retry(max_delay=1).delay_after(1, RetryLater(90)) == 90
    assert Retry().delay_after(1, RetryLater(timedelta(hours=1))) == 3600
    assert Retry().delay_after(1, RetryLater(-5)) == 0


def test_retry_later_in_last_attempt_gives_no_delay() -> None:
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
def test_retry_invalid_option_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Retry(**given)  # type: ignore[arg-type]


@given(policies)
def test_retry_to_dict_round_trips(policy: Retry) -> None:
    assert Retry(**policy.to_dict()) == policy
