"""Lease as its holder sees it, with a clock that the test sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from rota.coord import lease_clock
from rota.coord.lease import EXPIRED, TAKEN_BY_OTHER, Lease

TTL = 10.0


class Clock:
    """Replacement for the lease clock."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease_clock, "now", clock)
    return clock


def lease(clock: Callable[[], float], told: list[str] | None = None) -> Lease:
    return Lease("invoices", 0, 1, TTL, clock(), (told if told is not None else []).append)


def test_lease_is_trusted_for_less_than_its_ttl(clock: Clock) -> None:
    assert lease_clock.trusted_seconds(1.0) == pytest.approx(0.9)
    assert lease_clock.trusted_seconds(30.0) == pytest.approx(28.97)
    assert lease_clock.trusted_seconds(36_000.0) == pytest.approx(35_963), "clocks drift"
    held = lease(clock)
    clock.at += lease_clock.trusted_seconds(TTL) - 0.001
    assert held.is_held()
    clock.at += 0.002
    assert not held.is_held()


def test_lease_renewal_counts_from_the_time_of_the_request(clock: Clock) -> None:
    held = lease(clock)
    clock.at += 3
    sent = clock.at
    clock.at += 2  # the answer is late
    held.extend(sent)
    assert held.trusted_until == pytest.approx(sent + lease_clock.trusted_seconds(TTL))


def test_lease_late_renewal_does_not_revive_an_expired_lease(clock: Clock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    clock.at += 3
    sent = clock.at
    clock.at = held.trusted_until  # expired, but neither checked nor reported yet
    held.extend(sent)

    assert not held.is_held()
    assert held.lost_reason == EXPIRED
    held.extend(clock.at)
    assert not held.is_held()
    assert told == [EXPIRED]


def test_lease_loss_is_reported_once_with_the_first_reason(clock: Clock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    assert held.mark_lost(TAKEN_BY_OTHER)
    assert not held.mark_lost(EXPIRED)
    clock.at += 2 * TTL
    assert held.lost_reason == TAKEN_BY_OTHER
    assert told == [TAKEN_BY_OTHER]
    held.extend(clock.at)
    assert not held.is_held()


def test_lease_released_is_not_reported_lost(clock: Clock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    held.end()
    assert not held.is_held()
    assert not held.mark_lost(TAKEN_BY_OTHER)
    clock.at += 2 * TTL
    assert held.lost_reason is None
    held.extend(clock.at)
    assert not held.is_held()
    assert told == []


def test_lease_observed_as_expired_is_never_held_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewing thread has read the clock just before the expiry and has not extended the lease yet."""
    held = lease(clock)
    clock.at = held.trusted_until - 0.001
    looked, act = threading.Event(), threading.Event()

    def slow() -> float:
        now = clock.at
        if threading.current_thread() is renewing:
            looked.set()
            act.wait()
        return now

    monkeypatch.setattr(lease_clock, "now", slow)
    renewing = threading.Thread(target=held.extend, args=(clock.at,))
    renewing.start()
    looked.wait()
    clock.at = held.trusted_until + 0.001
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(held.is_held()))
    asking.start()
    asking.join(0.1)
    act.set()
    renewing.join()
    asking.join()
    answers.append(held.is_held())

    assert answers in ([True, True], [False, False])


def test_lease_clock_continues_during_machine_sleep() -> None:
    assert abs(lease_clock.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1.0
