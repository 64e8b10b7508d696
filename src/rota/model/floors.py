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

LANES = range(9, -1, -1)
AGE_TURN = 10
SHARE = 10
"""A full look may take one part in so many of the time."""
CHEAPEST = 0.0003
SAMPLES = 3
"""A full look is as dear as the cheapest of so many: what a noisy machine adds to one is not its cost."""


class Numbered(Protocol):
    place: int
    seq: int


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of the queues: its places in order, and the number each is read from."""

    queues: list[str]
    lanes: list[int]
    floors: list[int]
    full: bool


class Floors:
    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)
        self._floors = {(queue, lane): 0 for lane in LANES for queue in queues}
        self._turn = 0
        self._usual = 0.0
        self._costs: deque[float] = deque([CHEAPEST], maxlen=SAMPLES)
        self._affordable_at = 0.0
        self._suspect = True

    def suspect(self) -> None:
        """There may be something below a floor: make sure the next affordable look is a full one."""
        self._suspect = True

    @property
    def full_at(self) -> float | None:
        """When a full look that is wanted can be afforded; None: none is wanted."""
        return self._affordable_at if self._suspect else None

    def look(self, now: float) -> Look:
        self._turn += 1
        full = now >= self._affordable_at
        if self._turn % AGE_TURN == 0:
            places = sorted(self._floors, key=lambda place: self._floors[place])
        else:
            # Queues of one lane take turns at being first.
            shift = self._turn % len(self._queues)
            order = self._queues[shift:] + self._queues[:shift]
            places = [(queue, lane) for lane in LANES for queue in order]
        return Look(
            queues=[queue for queue, _ in places],
            lanes=[lane for _, lane in places],
            floors=[0 if full else self._floors[place] for place in places],
            full=full,
        )

    def learn(
        self, look: Look, found: Sequence[Numbered], wanted: int, took: float, now: float
    ) -> bool:
        """Remember what a look found. Answers whether another one may find more at once."""
        lowest: dict[int, int] = {}
        below = False
        for each in found:
            key = each.place - 1
            if each.seq < self._floors[look.queues[key], look.lanes[key]]:
                below = True
            elif each.seq < lowest.get(key, each.seq + 1):
                lowest[key] = each.seq
        for key, seq in lowest.items():
            self._floors[look.queues[key], look.lanes[key]] = seq

        short = len(found) < wanted
        if look.full:
            self._costs.append(max(took - self._usual, CHEAPEST))
            self._affordable_at = now + SHARE * min(self._costs)
            # Stragglers filled the claim: there may be more of them.
            self._suspect = below and not short
            return not short
        self._usual = 0.8 * self._usual + 0.2 * took if self._usual else took
        if short:
            self._suspect = True
        return not short
