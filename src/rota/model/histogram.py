"""How many of something were how large: counts between bounds, cheap to add to by the batch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

SECONDS_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
SIZE_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

MAX_UNSORTED_VALUES = 8
"""So many are looked at one by one; more are sorted first."""


class Histogram:
    """A value that is a bound counts below it, as Prometheus wants it."""

    __slots__ = ("bounds", "counts", "max_value", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        """Between the bounds; the last one: above all of them."""
        self.total = 0.0
        self.max_value = 0.0
        """Since somebody last asked, with `take_largest`."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if value > self.max_value:
            self.max_value = value

    def add_all(self, values: list[float]) -> None:
        """The list may be sorted by it."""
        if len(values) <= MAX_UNSORTED_VALUES:
            for value in values:
                self.add(value)
            return
        counts, start, max_value = self.counts, 0, max(values)
        self.total += sum(values)
        if max_value > self.max_value:
            self.max_value = max_value
        last_bucket = bisect_left(self.bounds, max_value)
        if not last_bucket or min(values) > self.bounds[last_bucket - 1]:
            counts[last_bucket] += len(values)
            return
        values.sort()
        for number, bound in enumerate(self.bounds):
            # Most batches lie between a few bounds: done as soon as all of it is below one.
            if values[start] <= bound:
                end = bisect_right(values, bound, start)
                counts[number] += end - start
                start = end
                if start == len(values):
                    break
        counts[-1] += len(values) - start

    def take_max_value(self) -> float:
        max_value, self.max_value = self.max_value, 0.0
        return max_value

    def merge(self, other: Histogram) -> None:
        self.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        self.total += other.total
        self.max_value = max(self.max_value, other.max_value)

    def cumulative(self) -> list[tuple[str, int]]:
        """Each bound, and how many were not above it; the last one is +Inf."""
        total, buckets = 0, []
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound is None else repr(bound), total))
        return buckets
