"""Where to read each queue's lanes from, and in which order.

Under an old snapshot the rows of claimed jobs stay in the index as dead entries, and a claim that starts
at the beginning walks over all of them. So each worker remembers, per queue and lane, the lowest number
it saw alive, its *floor*, and reads from there.

A job can be below the floor: its producer committed late, or it was put back under its old number. Only
a *full* look, from zero, finds it. A full look is taken whenever it is affordable, and what is
affordable follows from what the last one cost: at most a tenth of the time goes into them. Where nothing
holds dead entries back a full look costs next to nothing, and nearly every look is one.

Lanes are read from 9 down to 0. Every tenth turn the lane that lies furthest behind comes first, so a
busy lane cannot starve one below it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PRIORITIES = range(9, -1, -1)
OLDEST_FIRST_TURNS = 10
FULL_READ_PAUSE_FACTOR = 10
"""A full look may take one part in so many of the time."""
MIN_READ_SECONDS = 0.0003
COST_SAMPLES = 3
"""A full look is as dear as the cheapest of so many: what a noisy machine adds to one is not its cost."""


class HasSeq(Protocol):
    lane: int
    seq: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One reading of the queues: its places in order, and the number each is read from."""

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
        """There may be something below a floor: make sure the next affordable look is a full one."""
        self._needs_full_read = True

    @property
    def full_read_at(self) -> float | None:
        """When a full look that is wanted can be afforded; None: none is wanted."""
        return self._full_read_allowed_at if self._needs_full_read else None

    def plan(self, now: float) -> ReadPlan:
        self._turn += 1
        is_full = now >= self._full_read_allowed_at
        if self._turn % OLDEST_FIRST_TURNS == 0:
            lanes = sorted(self._cursors, key=lambda place: self._cursors[place])
        else:
            # Queues of one lane take turns at being first.
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
        """Remember what a look found. Answers whether another one may find more at once."""
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
            # Stragglers filled the claim: there may be more of them.
            self._needs_full_read = found_below and not is_exhausted
            return not is_exhausted
        self._usual_seconds = (
            0.8 * self._usual_seconds + 0.2 * seconds if self._usual_seconds else seconds
        )
        if is_exhausted:
            self._needs_full_read = True
        return not is_exhausted
