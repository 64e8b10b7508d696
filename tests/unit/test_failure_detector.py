"""Failure detector: dead workers by the uninterrupted observations of one worker."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.engine.worker.failure_detector import CONFIRM_SECONDS, FailureDetector

DEAD_AFTER = 20.0


@dataclass(frozen=True)
class ObservedWorker:
    worker: int = 1
    beats: int = 0
    has_session_lock: bool | None = None


class Observer:
    """A failure detector with a clock of its own."""

    def __init__(self, now: float = 1000.0) -> None:
        self.watch = FailureDetector(DEAD_AFTER)
        self.now = now

    def see(self, *seen: ObservedWorker, after: float = 1.0) -> list[int]:
        self.now += after
        return self.watch.observe(seen, self.now)

    def watch_for(self, seconds: float, *seen: ObservedWorker) -> list[int]:
        """Observe once a second for `seconds`, and return the dead workers of the last observation."""
        dead: list[int] = []
        for _ in range(round(seconds)):
            dead = self.see(*seen)
        return dead


@pytest.fixture
def observer() -> Observer:
    return Observer()


# A heartbeat that does not change


def test_detector_unchanged_heartbeat_for_dead_after_is_dead(observer: Observer) -> None:
    assert observer.see(ObservedWorker()) == []
    assert observer.watch_for(DEAD_AFTER - 1, ObservedWorker()) == []
    assert observer.see(ObservedWorker()) == [1]


def test_detector_late_heartbeat_restarts_dead_after(observer: Observer) -> None:
    observer.see(ObservedWorker(beats=5))
    observer.watch_for(DEAD_AFTER - 1, ObservedWorker(beats=5))

    assert observer.see(ObservedWorker(beats=6)) == []
    assert observer.watch_for(DEAD_AFTER - 1, ObservedWorker(beats=6)) == []
    assert observer.see(ObservedWorker(beats=6)) == [1]


@given(some.lists(some.integers(-(2**40), 2**40), min_size=2, max_size=40, unique=True))
def test_detector_any_changed_beat_value_counts_as_alive(beats: list[int]) -> None:
    """The detector checks only for a different value, not a larger one: it trusts no clock."""
    observer = Observer()

    for number in beats:
        assert observer.see(ObservedWorker(beats=number), after=DEAD_AFTER / 2) == []


@given(some.floats(-1e9, 1e9))
def test_detector_works_from_any_clock_start(start: float) -> None:
    observer = Observer(start)
    observer.see(ObservedWorker())

    assert observer.watch_for(DEAD_AFTER - 1, ObservedWorker()) == []
    assert observer.watch_for(2, ObservedWorker()) == [1]


def test_detector_dead_worker_is_reported_until_removed(observer: Observer) -> None:
    """The declaration may fail, so the detector reports the dead worker each time."""
    observer.see(ObservedWorker())

    assert observer.watch_for(DEAD_AFTER, ObservedWorker()) == [1]
    assert observer.see(ObservedWorker()) == [1]
    assert observer.see() == []


def test_detector_worker_seen_again_gets_full_dead_after(observer: Observer) -> None:
    observer.see(ObservedWorker())
    observer.watch_for(DEAD_AFTER - 2, ObservedWorker())
    observer.see()

    assert observer.watch_for(DEAD_AFTER - 1, ObservedWorker()) == []


def test_detector_observes_each_worker_separately(observer: Observer) -> None:
    observer.see(ObservedWorker(1), ObservedWorker(2), ObservedWorker(3))
    for beats in range(1, 20):
        assert (
            observer.see(
                ObservedWorker(1),
                ObservedWorker(2, beats=beats),
                ObservedWorker(3, beats=beats // 15),
            )
            == []
        )

    assert observer.see(
        ObservedWorker(1), ObservedWorker(2, beats=20), ObservedWorker(3, beats=1)
    ) == [1]


# A lost session lock


def test_detector_lock_missing_twice_a_second_apart_is_dead(observer: Observer) -> None:
    observer.see(ObservedWorker(has_session_lock=True))

    assert observer.see(ObservedWorker(has_session_lock=False)) == []
    assert observer.watch.confirm_in_seconds == CONFIRM_SECONDS == 1.0
    assert observer.see(ObservedWorker(has_session_lock=False), after=CONFIRM_SECONDS) == [1]


def test_detector_lock_missing_for_less_than_a_second_is_alive(observer: Observer) -> None:
    observer.see(ObservedWorker(has_session_lock=True))
    observer.see(ObservedWorker(has_session_lock=False))

    for left in (0.75, 0.5, 0.25):
        assert observer.see(ObservedWorker(has_session_lock=False), after=0.25) == []
        assert observer.watch.confirm_in_seconds == left
    assert observer.see(ObservedWorker(has_session_lock=False), after=0.25) == [1]


def test_detector_lock_never_seen_held_is_not_missing(observer: Observer) -> None:
    """The worker may not have acquired its session lock yet."""
    assert observer.watch_for(DEAD_AFTER, ObservedWorker(has_session_lock=False)) == []
    assert observer.watch.confirm_in_seconds is None


def test_detector_lock_held_again_restarts_confirmation(observer: Observer) -> None:
    observer.see(ObservedWorker(has_session_lock=True))
    observer.see(ObservedWorker(has_session_lock=False))
    observer.see(ObservedWorker(has_session_lock=True), after=0.5)
    assert observer.watch.confirm_in_seconds is None

    assert observer.see(ObservedWorker(has_session_lock=False), after=0.5) == []
    assert observer.see(ObservedWorker(has_session_lock=False), after=0.5) == []
    assert observer.see(ObservedWorker(has_session_lock=False), after=0.5) == [1]


def test_detector_missing_lock_after_fresh_heartbeat_is_dead(observer: Observer) -> None:
    observer.see(ObservedWorker(beats=1, has_session_lock=True))

    assert observer.see(ObservedWorker(beats=2, has_session_lock=False)) == []
    assert observer.see(ObservedWorker(beats=2, has_session_lock=False)) == [1]


def test_detector_flapping_lock_is_alive(observer: Observer) -> None:
    """The connection breaks repeatedly: a new session lock with every second beat."""
    for beats in range(200):
        assert (
            observer.see(ObservedWorker(beats=beats, has_session_lock=beats % 2 == 0), after=0.9)
            == []
        )


def test_detector_worker_behind_pooler_has_no_lock_to_lose(
    observer: Observer,
) -> None:
    observer.see(ObservedWorker(beats=1, has_session_lock=True))
    observer.see(ObservedWorker(beats=1, has_session_lock=False))

    assert observer.see(ObservedWorker(beats=2, has_session_lock=None), after=0.5) == []
    assert observer.see(ObservedWorker(beats=3, has_session_lock=False)) == []
    assert observer.see(ObservedWorker(beats=3, has_session_lock=False)) == []


def test_detector_confirmation_is_due_for_earliest_missing_lock(observer: Observer) -> None:
    observer.see(ObservedWorker(1, has_session_lock=True), ObservedWorker(2, has_session_lock=True))
    observer.see(
        ObservedWorker(1, has_session_lock=False), ObservedWorker(2, has_session_lock=True)
    )
    observer.see(
        ObservedWorker(1, has_session_lock=False),
        ObservedWorker(2, has_session_lock=False),
        after=0.25,
    )

    assert observer.watch.confirm_in_seconds == 0.75
    assert observer.see(
        ObservedWorker(1, has_session_lock=False),
        ObservedWorker(2, has_session_lock=False),
        after=0.75,
    ) == [1]
    assert observer.watch.confirm_in_seconds == 0.25


# Gaps in the observation


def test_detector_reset_gives_every_worker_full_dead_after(observer: Observer) -> None:
    """After a reset, every worker has the full `dead_after` from the first observation."""
    observer.see(ObservedWorker(1), ObservedWorker(2, has_session_lock=True))
    observer.watch_for(
        DEAD_AFTER - 1, ObservedWorker(1), ObservedWorker(2, beats=1, has_session_lock=True)
    )
    observer.watch.reset()

    assert observer.watch.confirm_in_seconds is None
    assert observer.see(ObservedWorker(1), ObservedWorker(2, beats=1, has_session_lock=False)) == []
    assert (
        observer.watch_for(
            DEAD_AFTER - 1, ObservedWorker(1), ObservedWorker(2, beats=1, has_session_lock=False)
        )
        == []
    )
    assert observer.see(ObservedWorker(1), ObservedWorker(2, beats=1, has_session_lock=False)) == [
        1,
        2,
    ]


def test_detector_reset_clears_pending_confirmation(observer: Observer) -> None:
    observer.see(ObservedWorker(has_session_lock=True))
    observer.see(ObservedWorker(has_session_lock=False))
    observer.watch.reset()

    assert observer.watch.confirm_in_seconds is None
    assert observer.see(ObservedWorker(has_session_lock=False)) == []
    assert observer.watch.confirm_in_seconds is None


@pytest.mark.parametrize("seated", [None, True, False])
def test_detector_after_own_freeze_discards_earlier_observations(
    observer: Observer, seated: bool | None
) -> None:
    observer.see(ObservedWorker(has_session_lock=True))
    observer.watch_for(DEAD_AFTER - 2, ObservedWorker(has_session_lock=True))
    observer.see(ObservedWorker(has_session_lock=seated), after=0.1)

    assert observer.see(ObservedWorker(has_session_lock=seated), after=DEAD_AFTER / 2 + 0.1) == []
    assert observer.see(ObservedWorker(has_session_lock=seated)) == []
    assert observer.watch_for(DEAD_AFTER - 2, ObservedWorker(has_session_lock=seated)) == []


@pytest.mark.parametrize("gap", [2.1, 5.0, DEAD_AFTER / 2])
def test_detector_gap_between_observations_restarts_confirmation(
    observer: Observer, gap: float
) -> None:
    """The whole machine was stopped in between: no worker could acquire its session lock again."""
    observer.see(ObservedWorker(has_session_lock=True))
    observer.see(ObservedWorker(has_session_lock=False))

    assert observer.see(ObservedWorker(has_session_lock=False), after=gap) == []
    assert observer.watch.confirm_in_seconds == CONFIRM_SECONDS
    assert observer.see(ObservedWorker(has_session_lock=False)) == [1]


@given(
    some.lists(
        some.tuples(
            some.floats(0.01, 60.0), some.booleans(), some.sampled_from([True, False, None])
        ),
        max_size=60,
    )
)
def test_detector_death_needs_uninterrupted_evidence(
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
        dead = observer.see(ObservedWorker(beats=beats, has_session_lock=seated), after=after)
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
