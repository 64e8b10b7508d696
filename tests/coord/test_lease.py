"""A hold as its holder sees it, by a clock that can be set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from rota.coord import trust
from rota.coord.lease import RAN_OUT, TAKEN, Lease

TTL = 10.0


class Clock:
    """What `trust.now()` says."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trust, "now", clock)
    return clock


def lease(clock: Callable[[], float], told: list[str] | None = None) -> Lease:
    return Lease("invoices", 0, 1, TTL, clock(), (told if told is not None else []).append)


def test_it_is_relied_on_for_less_than_it_is_held(clock: Clock) -> None:
    assert trust.relied_on(1.0) == pytest.approx(0.9)
    assert trust.relied_on(30.0) == pytest.approx(28.97)
    assert trust.relied_on(36_000.0) == pytest.approx(35_963), "clocks drift"
    held = lease(clock)
    clock.at += trust.relied_on(TTL) - 0.001
    assert held.held()
    clock.at += 0.002
    assert not held.held()


def test_a_renewal_counts_from_when_it_was_sent(clock: Clock) -> None:
    held = lease(clock)
    clock.at += 3
    sent = clock.at
    clock.at += 2  # the answer took its time
    held.renewed(sent)
    assert held.until == pytest.approx(sent + trust.relied_on(TTL))


def test_an_answer_that_comes_too_late_revives_nothing(clock: Clock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    clock.at += 3
    sent = clock.at
    clock.at = held.until  # nobody has asked, nobody was told yet
    held.renewed(sent)

    assert not held.held()
    assert held.why == RAN_OUT
    held.renewed(clock.at)
    assert not held.held()
    assert told == [RAN_OUT]


def test_its_loss_is_told_once_and_for_one_reason(clock: Clock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    assert held.lose(TAKEN)
    assert not held.lose(RAN_OUT)
    clock.at += 2 * TTL
    assert held.why == TAKEN
    assert told == [TAKEN]
    held.renewed(clock.at)
    assert not held.held()


def test_what_was_given_back_is_not_lost(clock: Clock) -> None:
    told: list[str] = []
    held = lease(clock, told)
    held.end()
    assert not held.held()
    assert not held.lose(TAKEN)
    clock.at += 2 * TTL
    assert held.why is None
    held.renewed(clock.at)
    assert not held.held()
    assert told == []


def test_whoever_was_told_no_is_never_told_yes_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renewed at the very last moment: who does that has looked at the clock, and not yet acted."""
    held = lease(clock)
    clock.at = held.until - 0.001
    looked, act = threading.Event(), threading.Event()

    def slow() -> float:
        now = clock.at
        if threading.current_thread() is renewing:
            looked.set()
            act.wait()
        return now

    monkeypatch.setattr(trust, "now", slow)
    renewing = threading.Thread(target=held.renewed, args=(clock.at,))
    renewing.start()
    looked.wait()
    clock.at = held.until + 0.001
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(held.held()))
    asking.start()
    asking.join(0.1)
    act.set()
    renewing.join()
    asking.join()
    answers.append(held.held())

    assert answers in ([True, True], [False, False])


def test_it_goes_on_while_the_machine_sleeps() -> None:
    assert abs(trust.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1.0
