"""Who of the others is dead, by what one observer has seen of them without a break.

Two signs, and both are changes the observer saw with its own eyes: a beat that has not moved for as long
as a worker may be silent, and a lock that was held and is not any more, in two looks a second apart.

No clock but the observer's own is asked, so a database whose clock jumps kills nobody. And nothing is
inferred from what it did not see: after its own connection broke, or it slept, it has seen nothing yet.
So an outage ends nobody's life but that of a worker which does not come back from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

CONFIRM_SECONDS = 1.0
"""Seconds between the two looks that find a lock gone."""


class HasHeartbeat(Protocol):
    """What is seen of a worker in one look."""

    @property
    def worker(self) -> int: ...

    @property
    def beats(self) -> int: ...

    @property
    def has_session_lock(self) -> bool | None:
        """Whether the lock is held; None: there is none."""


@dataclass(slots=True)
class _Observation:
    beats: int
    unchanged_since: float
    had_session_lock: bool = False
    unlocked_since: float | None = None


class FailureDetector:
    def __init__(self, dead_after: float) -> None:
        self._dead_after = dead_after
        self._observations: dict[int, _Observation] = {}
        self._observed_at: float | None = None
        self.confirm_in_seconds: float | None = None
        """Seconds until the look that decides; None: there is nothing to decide."""

    def reset(self) -> None:
        """Something broke: what was seen before it counts for nothing."""
        self._observations.clear()
        self._observed_at = None
        self.confirm_in_seconds = None

    def observe(self, observed: Sequence[HasHeartbeat], now: float) -> list[int]:
        """Take in one look; answers who is dead."""
        gap = 0.0 if self._observed_at is None else now - self._observed_at
        if gap > self._dead_after / 2:
            # We were frozen, or starved. So, perhaps, was everybody here.
            self.reset()
        self._observed_at = now
        self.confirm_in_seconds = None
        previous, self._observations = self._observations, {}
        dead = []
        for each in observed:
            observation = previous.get(each.worker)
            if observation is None or observation.beats != each.beats:
                had_session_lock = observation is not None and observation.had_session_lock
                unlocked_since = observation.unlocked_since if observation is not None else None
                observation = _Observation(each.beats, now, had_session_lock, unlocked_since)
            self._observations[each.worker] = observation
            if gap > 2 * CONFIRM_SECONDS:
                observation.unlocked_since = None  # nor had it its second to come back
            if (
                self._lost_session_lock(observation, each.has_session_lock, now)
                or now - observation.unchanged_since >= self._dead_after
            ):
                dead.append(each.worker)
        return dead

    def _lost_session_lock(
        self, observation: _Observation, has_session_lock: bool | None, now: float
    ) -> bool:
        if has_session_lock is not False:
            observation.had_session_lock = has_session_lock is True
            observation.unlocked_since = None
            return False
        if not observation.had_session_lock:
            return False  # perhaps it is only about to sit down
        if observation.unlocked_since is None:
            observation.unlocked_since = now
        remaining = CONFIRM_SECONDS - (now - observation.unlocked_since)
        if remaining <= 0:
            return True
        self.confirm_in_seconds = (
            remaining
            if self.confirm_in_seconds is None
            else min(self.confirm_in_seconds, remaining)
        )
        return False
