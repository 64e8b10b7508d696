"""Cursors of the lanes: from which sequence number each lane is read, and in which order.

While an old snapshot is open, the rows of claimed jobs stay in the index as dead entries. A claim that
starts at the beginning walks over all of them. So each worker keeps a *cursor* per lane: the lowest
sequence number that its last claim found there. The next claim reads from the cursor on.

A job can be below the cursor: its producer committed late, or it was requeued under its old number. Only a
*full read*, from zero, finds it. Full reads may use at most a tenth of the time, measured by the cost of
the last ones. Without dead entries a full read costs almost nothing, and nearly every read is full.

Lanes are read by priority, from 9 down to 0. Every tenth turn they are read by cursor, the lowest first, so
a busy lane cannot starve one of lower priority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PRIORITIES = range(9, -1, -1)
OLDEST_FIRST_TURNS = 10
FULL_READ_PAUSE_FACTOR = 10
"""After a full read, the pause is this many times its cost."""
MIN_READ_SECONDS = 0.0003
COST_SAMPLES = 3
"""Number of recent full reads; the cheapest is taken as the cost, to ignore noise of the machine."""


class HasSeq(Protocol):
    lane: int
    seq: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Lanes in the order in which a claim reads them, and the sequence number each is read from."""

    queues: list[str]
    priorities: list[int]
    cursors: list[int]
    is_full: bool


class QueueCursors:
    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)
        self._cursors = {(queue, priority): 0 for priority in PRIORITIES for queue in queues}
        self._turn = 0
        self._usual_seconds = 0.0
        self._full_read_costs: deque[float] = deque([MIN_READ_SECONDS], maxlen=COST_SAMPLES)
        self._full_read_allowed_at = 0.0
        self._needs_full_read = True

    def request_full_read(self) -> None:
        """Make a full read as soon as one is allowed: there may be jobs below a cursor."""
        self._needs_full_read = True

    @property
    def full_read_at(self) -> float | None:
        """Monotonic time from which the requested full read is allowed; None if none is requested."""
        return self._full_read_allowed_at if self._needs_full_read else None

    def plan(self, now: float) -> ReadPlan:
        self._turn += 1
        is_full = now >= self._full_read_allowed_at
        if self._turn % OLDEST_FIRST_TURNS == 0:
            lanes = sorted(self._cursors, key=lambda place: self._cursors[place])
        else:
            # At each priority, the queues take turns at being first.
            shift = self._turn % len(self._queues)
            order = self._queues[shift:] + self._queues[:shift]
            lanes = [(queue, priority) for priority in PRIORITIES for queue in order]
        return ReadPlan(
            queues=[queue for queue, _ in lanes],
            priorities=[priority for _, priority in lanes],
            cursors=[0 if is_full else self._cursors[lane] for lane in lanes],
            is_full=is_full,
        )

    def record(
        self, plan: ReadPlan, found: Sequence[HasSeq], limit: int, seconds: float, now: float
    ) -> bool:
        """Advance the cursors after a read. Return True if another read may find more jobs at once."""
        lowest: dict[int, int] = {}
        found_below = False
        for each in found:
            index = each.lane - 1
            if each.seq < self._cursors[plan.queues[index], plan.priorities[index]]:
                found_below = True
            elif each.seq < lowest.get(index, each.seq + 1):
                lowest[index] = each.seq
        for index, seq in lowest.items():
            self._cursors[plan.queues[index], plan.priorities[index]] = seq

        is_exhausted = len(found) < limit
        if plan.is_full:
            self._full_read_costs.append(max(seconds - self._usual_seconds, MIN_READ_SECONDS))
            self._full_read_allowed_at = now + FULL_READ_PAUSE_FACTOR * min(self._full_read_costs)
            # Jobs below a cursor were among a full batch: there may be more of them.
            self._needs_full_read = found_below and not is_exhausted
            return not is_exhausted
        self._usual_seconds = (
            0.8 * self._usual_seconds + 0.2 * seconds if self._usual_seconds else seconds
        )
        if is_exhausted:
            self._needs_full_read = True
        return not is_exhausted
