"""Failure detector: decides which other workers are dead, from one worker's unbroken observations.

A worker counts as dead in either of two cases:

    its heartbeat counter has not changed for `dead_after` seconds
    its session lock was held and then missing in two observations CONFIRM_SECONDS apart

Only the observer's monotonic clock counts, so a jump of the database's clock kills no worker. Observations
must be unbroken: after a lost connection or a long pause of the observer, they start over. So after an
outage only those workers are declared dead that do not return from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

CONFIRM_SECONDS = 1.0
"""Time between the two observations that find a session lock missing."""


class HasHeartbeat(Protocol):
    """Observation of a worker."""

    @property
    def worker(self) -> int: ...

    @property
    def beats(self) -> int: ...

    @property
    def has_session_lock(self) -> bool | None:
        """True if the session lock is held; None if the worker has none."""


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
        """Seconds until the observation that confirms a missing lock; None if no lock is missing."""

    def reset(self) -> None:
        """Discard all observations, for example after the connection broke."""
        self._observations.clear()
        self._observed_at = None
        self.confirm_in_seconds = None

    def observe(self, observed: Sequence[HasHeartbeat], now: float) -> list[int]:
        """Add an observation of all other workers; return the ids of those that are dead."""
        gap = 0.0 if self._observed_at is None else now - self._observed_at
        if gap > self._dead_after / 2:
            # This process was frozen or starved, and the other workers perhaps as well.
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
                observation.unlocked_since = None  # the worker had no second to reconnect, either
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
            return False  # the worker may not have taken its lock yet
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
