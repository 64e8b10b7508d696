"""Failure detector: dead workers by the uninterrupted observations of one worker."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.engine.worker.failure_detector import CONFIRM_SECONDS, FailureDetector

DEAD_AFTER = 20.0


@dataclass(frozen=True)
class Seen:
    worker: int = 1
    beats: int = 0
    has_session_lock: bool | None = None


class Observer:
    """A failure detector with a clock of its own."""

    def __init__(self, now: float = 1000.0) -> None:
        self.watch = FailureDetector(DEAD_AFTER)
        self.now = now

    def see(self, *seen: Seen, after: float = 1.0) -> list[int]:
        self.now += after
        return self.watch.observe(seen, self.now)

    def watch_for(self, seconds: float, *seen: Seen) -> list[int]:
        """Observe once a second for `seconds`, and return the dead workers of the last observation."""
        dead: list[int] = []
        for _ in range(round(seconds)):
            dead = self.see(*seen)
        return dead


@pytest.fixture
def observer() -> Observer:
    return Observer()


# A heartbeat that does not change


def test_one_whose_beat_stands_still_for_as_long_as_it_may_is_dead(observer: Observer) -> None:
    assert observer.see(Seen()) == []
    assert observer.watch_for(DEAD_AFTER - 1, Seen()) == []
    assert observer.see(Seen()) == [1]


def test_a_beat_in_the_last_moment_is_a_beat(observer: Observer) -> None:
    observer.see(Seen(beats=5))
    observer.watch_for(DEAD_AFTER - 1, Seen(beats=5))

    assert observer.see(Seen(beats=6)) == []
    assert observer.watch_for(DEAD_AFTER - 1, Seen(beats=6)) == []
    assert observer.see(Seen(beats=6)) == [1]


@given(some.lists(some.integers(-(2**40), 2**40), min_size=2, max_size=40, unique=True))
def test_any_change_is_life_whichever_way_it_goes(beats: list[int]) -> None:
    """The detector checks only for a different value, not a larger one: it trusts no clock."""
    observer = Observer()

    for number in beats:
        assert observer.see(Seen(beats=number), after=DEAD_AFTER / 2) == []


@given(some.floats(-1e9, 1e9))
def test_the_observers_own_clock_may_start_anywhere(start: float) -> None:
    observer = Observer(start)
    observer.see(Seen())

    assert observer.watch_for(DEAD_AFTER - 1, Seen()) == []
    assert observer.watch_for(2, Seen()) == [1]


def test_one_that_stays_dead_is_said_again_until_it_is_gone(observer: Observer) -> None:
    """The declaration may fail, so the detector reports the dead worker each time."""
    observer.see(Seen())

    assert observer.watch_for(DEAD_AFTER, Seen()) == [1]
    assert observer.see(Seen()) == [1]
    assert observer.see() == []


def test_one_that_was_away_and_is_there_again_starts_anew(observer: Observer) -> None:
    observer.see(Seen())
    observer.watch_for(DEAD_AFTER - 2, Seen())
    observer.see()

    assert observer.watch_for(DEAD_AFTER - 1, Seen()) == []


def test_each_is_watched_by_itself(observer: Observer) -> None:
    observer.see(Seen(1), Seen(2), Seen(3))
    for beats in range(1, 20):
        assert observer.see(Seen(1), Seen(2, beats=beats), Seen(3, beats=beats // 15)) == []

    assert observer.see(Seen(1), Seen(2, beats=20), Seen(3, beats=1)) == [1]


# A lost session lock


def test_a_lock_gone_in_two_looks_a_second_apart_is_a_death(observer: Observer) -> None:
    observer.see(Seen(has_session_lock=True))

    assert observer.see(Seen(has_session_lock=False)) == []
    assert observer.watch.confirm_in_seconds == CONFIRM_SECONDS == 1.0
    assert observer.see(Seen(has_session_lock=False), after=CONFIRM_SECONDS) == [1]


def test_looks_closer_together_are_one_look(observer: Observer) -> None:
    observer.see(Seen(has_session_lock=True))
    observer.see(Seen(has_session_lock=False))

    for left in (0.75, 0.5, 0.25):
        assert observer.see(Seen(has_session_lock=False), after=0.25) == []
        assert observer.watch.confirm_in_seconds == left
    assert observer.see(Seen(has_session_lock=False), after=0.25) == [1]


def test_one_that_was_never_seen_holding_it_is_not_gone(observer: Observer) -> None:
    """The worker may not have acquired its session lock yet."""
    assert observer.watch_for(DEAD_AFTER, Seen(has_session_lock=False)) == []
    assert observer.watch.confirm_in_seconds is None


def test_one_that_holds_it_again_was_never_gone(observer: Observer) -> None:
    observer.see(Seen(has_session_lock=True))
    observer.see(Seen(has_session_lock=False))
    observer.see(Seen(has_session_lock=True), after=0.5)
    assert observer.watch.confirm_in_seconds is None

    assert observer.see(Seen(has_session_lock=False), after=0.5) == []
    assert observer.see(Seen(has_session_lock=False), after=0.5) == []
    assert observer.see(Seen(has_session_lock=False), after=0.5) == [1]


def test_one_that_beat_just_before_it_went_is_gone_all_the_same(observer: Observer) -> None:
    observer.see(Seen(beats=1, has_session_lock=True))

    assert observer.see(Seen(beats=2, has_session_lock=False)) == []
    assert observer.see(Seen(beats=2, has_session_lock=False)) == [1]


def test_a_seat_that_flaps_kills_nobody(observer: Observer) -> None:
    """The connection breaks repeatedly: a new session lock with every second beat."""
    for beats in range(200):
        assert observer.see(Seen(beats=beats, has_session_lock=beats % 2 == 0), after=0.9) == []


def test_one_that_goes_through_a_pooler_from_here_on_has_no_lock_to_lose(
    observer: Observer,
) -> None:
    observer.see(Seen(beats=1, has_session_lock=True))
    observer.see(Seen(beats=1, has_session_lock=False))

    assert observer.see(Seen(beats=2, has_session_lock=None), after=0.5) == []
    assert observer.see(Seen(beats=3, has_session_lock=False)) == []
    assert observer.see(Seen(beats=3, has_session_lock=False)) == []


def test_the_look_that_decides_comes_when_the_first_of_them_is_due(observer: Observer) -> None:
    observer.see(Seen(1, has_session_lock=True), Seen(2, has_session_lock=True))
    observer.see(Seen(1, has_session_lock=False), Seen(2, has_session_lock=True))
    observer.see(Seen(1, has_session_lock=False), Seen(2, has_session_lock=False), after=0.25)

    assert observer.watch.confirm_in_seconds == 0.75
    assert observer.see(
        Seen(1, has_session_lock=False), Seen(2, has_session_lock=False), after=0.75
    ) == [1]
    assert observer.watch.confirm_in_seconds == 0.25


# Gaps in the observation


def test_after_a_break_it_has_seen_nothing_yet(observer: Observer) -> None:
    """After a reset, every worker has the full `dead_after` from the first observation."""
    observer.see(Seen(1), Seen(2, has_session_lock=True))
    observer.watch_for(DEAD_AFTER - 1, Seen(1), Seen(2, beats=1, has_session_lock=True))
    observer.watch.reset()

    assert observer.watch.confirm_in_seconds is None
    assert observer.see(Seen(1), Seen(2, beats=1, has_session_lock=False)) == []
    assert (
        observer.watch_for(DEAD_AFTER - 1, Seen(1), Seen(2, beats=1, has_session_lock=False)) == []
    )
    assert observer.see(Seen(1), Seen(2, beats=1, has_session_lock=False)) == [1, 2]


def test_after_a_break_there_is_no_look_to_be_decided_by(observer: Observer) -> None:
    observer.see(Seen(has_session_lock=True))
    observer.see(Seen(has_session_lock=False))
    observer.watch.reset()

    assert observer.watch.confirm_in_seconds is None
    assert observer.see(Seen(has_session_lock=False)) == []
    assert observer.watch.confirm_in_seconds is None


@pytest.mark.parametrize("seated", [None, True, False])
def test_one_that_was_frozen_itself_believes_nothing_it_saw_before(
    observer: Observer, seated: bool | None
) -> None:
    observer.see(Seen(has_session_lock=True))
    observer.watch_for(DEAD_AFTER - 2, Seen(has_session_lock=True))
    observer.see(Seen(has_session_lock=seated), after=0.1)

    assert observer.see(Seen(has_session_lock=seated), after=DEAD_AFTER / 2 + 0.1) == []
    assert observer.see(Seen(has_session_lock=seated)) == []
    assert observer.watch_for(DEAD_AFTER - 2, Seen(has_session_lock=seated)) == []


@pytest.mark.parametrize("gap", [2.1, 5.0, DEAD_AFTER / 2])
def test_after_a_gap_a_lock_has_its_second_to_come_back(observer: Observer, gap: float) -> None:
    """The whole machine was stopped in between: no worker could acquire its session lock again."""
    observer.see(Seen(has_session_lock=True))
    observer.see(Seen(has_session_lock=False))

    assert observer.see(Seen(has_session_lock=False), after=gap) == []
    assert observer.watch.confirm_in_seconds == CONFIRM_SECONDS
    assert observer.see(Seen(has_session_lock=False)) == [1]


@given(
    some.lists(
        some.tuples(
            some.floats(0.01, 60.0), some.booleans(), some.sampled_from([True, False, None])
        ),
        max_size=60,
    )
)
def test_nobody_is_dead_without_an_unbroken_reason(
    looks: list[tuple[float, bool, bool | None]],
) -> None:
    """A death needs `dead_after` seconds of observation without a beat, or a session lock that was held and
    then missing in observations a second apart, with no observation that saw it and no gap in between."""
    observer = Observer()
    history: list[tuple[float, int, bool | None]] = []
    beats = 0
    for after, beat, seated in looks:
        beats += beat
        if history and after > DEAD_AFTER / 2:
            history.clear()
        dead = observer.see(Seen(beats=beats, has_session_lock=seated), after=after)
        history.append((observer.now, beats, seated))
        if dead:
            silent = [at for at, was, _ in history if was == beats]
            unheard = observer.now - silent[0] >= DEAD_AFTER - 1e-6
            held = [number for number, each in enumerate(history) if each[2] is not False]
            since = [at for at, _, _ in history[held[-1] + 1 :]] if held else []
            gaps = [
                number for number in range(1, len(since)) if since[number] - since[number - 1] > 2
            ]
            since = since[gaps[-1] :] if gaps else since
            gone = (
                bool(since)
                and history[held[-1]][2] is True
                and observer.now - since[0] >= CONFIRM_SECONDS - 1e-6
            )
            assert unheard or gone
