"""How many of something were how large: counts between bounds, cheap to add to by the batch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

FEW = 8
"""So many are looked at one by one; more are sorted first."""


class Histogram:
    """A value that is a bound counts below it, as Prometheus wants it."""

    __slots__ = ("bounds", "counts", "largest", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        """Between the bounds; the last one: above all of them."""
        self.total = 0.0
        self.largest = 0.0
        """Since somebody last asked, with `take_largest`."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if value > self.largest:
            self.largest = value

    def add_all(self, values: list[float]) -> None:
        """The list may be sorted by it."""
        if len(values) <= FEW:
            for value in values:
                self.add(value)
            return
        counts, at, largest = self.counts, 0, max(values)
        self.total += sum(values)
        if largest > self.largest:
            self.largest = largest
        highest = bisect_left(self.bounds, largest)
        if not highest or min(values) > self.bounds[highest - 1]:
            counts[highest] += len(values)
            return
        values.sort()
        for number, bound in enumerate(self.bounds):
            # Most batches lie between a few bounds: done as soon as all of it is below one.
            if values[at] <= bound:
                upto = bisect_right(values, bound, at)
                counts[number] += upto - at
                at = upto
                if at == len(values):
                    break
        counts[-1] += len(values) - at

    def take_largest(self) -> float:
        largest, self.largest = self.largest, 0.0
        return largest

    def merge(self, other: Histogram) -> None:
        self.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    def cumulative(self) -> list[tuple[str, int]]:
        """Each bound, and how many were not above it; the last one is +Inf."""
        seen, answer = 0, []
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            seen += count
            answer.append(("+Inf" if bound is None else repr(bound), seen))
        return answer
