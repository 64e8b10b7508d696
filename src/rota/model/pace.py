"""How many jobs to hold beyond those that run.

While one batch runs and another is being written, the next must be on its way, or short jobs wait for
the network. How many that takes follows from what is measured: the jobs that end in the time of two
round trips. Long jobs end rarely, so for them it is none, and nothing waits in a busy worker's hands
that an idle one could run.
"""

from __future__ import annotations

_WEIGHT = 0.3


class Pace:
    def __init__(self, most: int) -> None:
        self._most = most
        self._rate = 0.0
        self._round_trip = 0.0
        self._last: float | None = None

    def ended(self, count: int, now: float) -> None:
        """So many jobs ended since the last call."""
        if self._last is not None and now > self._last:
            rate = count / (now - self._last)
            # Slowing down counts at once, speeding up gradually: holding too many harms others.
            self._rate = rate if rate < self._rate else self._mix(self._rate, rate)
        self._last = now

    def round_trip(self, took: float) -> None:
        self._round_trip = self._mix(self._round_trip, took) if self._round_trip else took

    @property
    def ahead(self) -> int:
        return min(int(self._rate * self._round_trip * 2), self._most)

    @staticmethod
    def _mix(old: float, new: float) -> float:
        return old * (1 - _WEIGHT) + new * _WEIGHT
