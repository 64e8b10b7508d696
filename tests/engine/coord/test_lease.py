"""Lease as its holder sees it, with a clock that the test sets."""

from __future__ import annotations

import threading
import time

import pytest

from rota.coord.lease import EXPIRED, TAKEN_BY_OTHER, Lease, LeaseClock, trusted_seconds
from support.owned_clock import OwnedClock

TTL = 10.0


@pytest.fixture
def clock() -> OwnedClock:
    return OwnedClock()


def lease(clock: LeaseClock, told: list[str] | None = None) -> Lease:
    on_lost = (told if told is not None else []).append
    return Lease("invoices", 0, 1, TTL, clock.now(), clock, on_lost)


def test_lease_is_trusted_for_less_than_its_ttl(clock: OwnedClock) -> None:
    assert trusted_seconds(1.0) == pytest.approx(0.9)
    assert trusted_seconds(30.0) == pytest.approx(28.97)
    assert trusted_seconds(36_000.0) == pytest.approx(35_963), "clocks drift"
    held = lease(clock)
    clock.advance(trusted_seconds(TTL) - 0.001)
    assert held.is_held()
    clock.advance(0.002)
    assert not held.is_held()


def test_lease_renewal_counts_from_the_time_of_the_request(clock: OwnedClock) -> None:
    held = lease(clock)
    clock.advance(3)
    sent = clock.now()
    clock.advance(2)  # the answer is late
    held.extend(sent)
    assert held.trusted_until == pytest.approx(sent + trusted_seconds(TTL))


def test_lease_late_renewal_does_not_revive_an_expired_lease(clock: OwnedClock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    clock.advance(3)
    sent = clock.now()
    clock.advance_to(held.trusted_until)  # expired, but neither checked nor reported yet
    held.extend(sent)

    assert not held.is_held()
    assert held.lost_reason == EXPIRED
    held.extend(clock.now())
    assert not held.is_held()
    assert told == [EXPIRED]


def test_lease_loss_is_reported_once_with_the_first_reason(clock: OwnedClock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    assert held.mark_lost(TAKEN_BY_OTHER)
    assert not held.mark_lost(EXPIRED)
    clock.advance(2 * TTL)
    assert held.lost_reason == TAKEN_BY_OTHER
    assert told == [TAKEN_BY_OTHER]
    held.extend(clock.now())
    assert not held.is_held()


def test_lease_released_is_not_reported_lost(clock: OwnedClock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    held.end()
    assert not held.is_held()
    assert not held.mark_lost(TAKEN_BY_OTHER)
    clock.advance(2 * TTL)
    assert held.lost_reason is None
    held.extend(clock.now())
    assert not held.is_held()
    assert told == []


def test_lease_observed_as_expired_is_never_held_again() -> None:
    """The renewing thread has read the clock just before the expiry and has not extended the lease yet."""
    looked, act = threading.Event(), threading.Event()

    class SlowClock(OwnedClock):
        def now(self) -> float:
            now = super().now()
            if threading.current_thread().name == "renewing":
                looked.set()
                act.wait()
            return now

    clock = SlowClock()
    held = lease(clock)
    clock.advance_to(held.trusted_until - 0.001)
    renewing = threading.Thread(target=held.extend, args=(clock.now(),), name="renewing")
    renewing.start()
    looked.wait()
    clock.advance_to(held.trusted_until + 0.001)
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
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = LeaseClock().now()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
