"""How many jobs to hold beyond those that run.

While one batch runs and another is being written, the next must be on its way, or short jobs leave
places empty for the length of a round trip. Long jobs leave none, and a job that waits in a busy
worker's hands is one that an idle worker could have run. So the number follows from what is seen:

    places were empty again when an answer came   hold twice as many
    jobs waited longer than a few answers         hold half as many

A worker that has just started holds none beyond what it can run.
"""

from __future__ import annotations

ALLOWED_WAIT_SECONDS = 0.03
"""Seconds that a job may always wait here for a place."""


class Prefetch:
    def __init__(self, capacity: int, limit: int) -> None:
        self._capacity = capacity
        self._limit = limit
        self._round_trip_seconds = 0.0
        self._was_full = False  # whether the last answer brought as many as were asked for
        self.count = 0

    def on_claim(self, idle_slots: int, seconds: float, *, is_full: bool) -> None:
        """A claim was answered, after so long, with as many as were asked for or fewer; so many places
        were empty by then."""
        self._round_trip_seconds = (
            seconds
            if not self._round_trip_seconds
            else 0.7 * self._round_trip_seconds + 0.3 * seconds
        )
        # Only places that an answer had filled say that jobs are short: at first they are all empty.
        if is_full and self._was_full and idle_slots * 4 > self._capacity:
            self.count = min(max(self._capacity // 2, self.count * 2, 1), self._limit)
        self._was_full = is_full

    def on_wait(self, seconds: float) -> None:
        """The job that has waited longest for a place has waited so long."""
        if seconds > max(4 * self._round_trip_seconds, ALLOWED_WAIT_SECONDS):
            self.count //= 2
