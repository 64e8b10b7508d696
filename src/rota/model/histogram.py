"""Histogram with fixed bounds, cheap to update in batches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

SECONDS_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
SIZE_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

MAX_UNSORTED_VALUES = 8
"""Batches up to this size are added value by value; larger ones are sorted first."""


class Histogram:
    """Histogram whose buckets include their upper bound, as Prometheus requires."""

    __slots__ = ("bounds", "counts", "max_value", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        """Count of each bucket; the last one is above all bounds."""
        self.total = 0.0
        self.max_value = 0.0
        """Largest value since the last call of `take_max_value`."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if value > self.max_value:
            self.max_value = value

    def add_all(self, values: list[float]) -> None:
        """Add all values. The list may be sorted in place."""
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
            # Most batches span few buckets: stop as soon as every value is counted.
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
        """Return each bound with the number of values up to it; the last bound is +Inf."""
        total, buckets = 0, []
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound is None else repr(bound), total))
        return buckets
