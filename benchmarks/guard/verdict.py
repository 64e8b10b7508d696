"""Comparison of costs: which of them rose, and by how much.

Some counts depend on batches, that is, on the number of jobs that were queued when a round trip began. They
differ between runs. Their tolerance is the measured spread between runs of one commit; other counts have
only a tolerance for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from benchmarks.guard.workloads import Cost

CPU_LIMIT = 1.05


@dataclass(frozen=True)
class Measure:
    field: str
    title: str
    digits: int
    is_cpu: bool = False


MEASURES = (
    Measure("statements", "statements", 4),
    Measure("round_trips", "round trips", 4),
    Measure("row_versions", "row versions", 3),
    Measure("wal_bytes", "WAL bytes", 1),
    Measure("client_us", "client CPU µs", 2, is_cpu=True),
    Measure("server_us", "server CPU µs", 2, is_cpu=True),
)

TOLERANCES = {
    # The number of batches differs between runs.
    ("drain", "statements"): 0.25,
    ("drain", "round_trips"): 0.25,
    ("drain", "row_versions"): 0.01,
    ("drain", "wal_bytes"): 0.02,
    # Runs contain different numbers of heartbeats, polls and coalesced notifications.
    ("latency", "statements"): 0.03,
    ("latency", "round_trips"): 0.03,
    ("latency", "row_versions"): 0.01,
    ("latency", "wal_bytes"): 0.02,
    # Notifications of starts are coalesced for some milliseconds; their number differs by one.
    ("bulk", "statements"): 0.06,
    ("bulk", "round_trips"): 0.06,
    ("bulk", "wal_bytes"): 0.002,
    ("single", "statements"): 0.10,
    ("single", "round_trips"): 0.10,
    ("single", "wal_bytes"): 0.01,
}
ROUNDING = 0.001


@dataclass(frozen=True)
class Row:
    workload: str
    measure: Measure
    base: float
    head: float
    ratio: float
    spread: tuple[float, float]
    limit: float

    @property
    def rose(self) -> bool:
        return self.ratio > self.limit


def compare(workload: str, base: Sequence[Cost], head: Sequence[Cost], measure: Measure) -> Row:
    """Compare the medians of paired runs; for CPU time, use the median of the pairs' ratios."""
    pairs = [
        (getattr(b, measure.field), getattr(h, measure.field))
        for b, h in zip(base, head, strict=True)
    ]
    ratios = sorted(h / b if b else 1.0 for b, h in pairs)
    base_median, head_median = median(b for b, _ in pairs), median(h for _, h in pairs)
    if measure.is_cpu:
        ratio, limit = median(ratios), CPU_LIMIT
    else:
        ratio = head_median / base_median if base_median else 1.0
        limit = 1 + TOLERANCES.get((workload, measure.field), ROUNDING)
    return Row(workload, measure, base_median, head_median, ratio, (ratios[0], ratios[-1]), limit)


def table(rows: Sequence[Row]) -> Table:
    made = Table("workload", "per job", "base", "head", "ratio", "pairs", "limit", "")
    for row in rows:
        digits = row.measure.digits
        made.add_row(
            row.workload,
            row.measure.title,
            f"{row.base:.{digits}f}",
            f"{row.head:.{digits}f}",
            f"{row.ratio:.3f}",
            f"{row.spread[0]:.2f}–{row.spread[1]:.2f}",
            f"{row.limit:.3f}",
            "[red]rose[/]" if row.rose else "ok",
        )
    return made
