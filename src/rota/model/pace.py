"""How many jobs to hold beyond those that run.

While one batch runs and another is being written, the next must be on its way, or short jobs leave
places empty for the length of a round trip. Long jobs leave none, and a job that waits in a busy
worker's hands is one that an idle worker could have run. So the number follows from what is seen:

    places were empty again when an answer came   hold twice as many
    jobs waited longer than a few answers         hold half as many

A worker that has just started holds none beyond what it can run.
"""

from __future__ import annotations

PATIENCE = 0.03
"""Seconds that a job may always wait here for a place."""


class Pace:
    def __init__(self, capacity: int, most: int) -> None:
        self._capacity = capacity
        self._most = most
        self._round_trip = 0.0
        self._filled = False  # whether the last answer brought as many as were asked for
        self.ahead = 0

    def answered(self, idle: int, took: float, *, full: bool) -> None:
        """A claim was answered, after so long, with as many as were asked for or fewer; so many places
        were empty by then."""
        self._round_trip = took if not self._round_trip else 0.7 * self._round_trip + 0.3 * took
        # Only places that an answer had filled say that jobs are short: at first they are all empty.
        if full and self._filled and idle * 4 > self._capacity:
            self.ahead = min(max(self._capacity // 2, self.ahead * 2, 1), self._most)
        self._filled = full

    def waited(self, seconds: float) -> None:
        """The job that has waited longest for a place has waited so long."""
        if seconds > max(4 * self._round_trip, PATIENCE):
            self.ahead //= 2
