"""Charts of the job statistics over the last minutes, hours or day, and number formats of pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from markupsafe import Markup

from rota.drawing.charts import ChartBuckets, ChartSeries, bar_chart, line_chart, sparkline
from rota.operations.declare import OperationContext
from rota.store.query import Query
from rota.store.read import metrics
from rota.store.read.metrics import BucketRow, JobCounts
from rota.web.dashboard.template_helpers import format_count, format_duration

MAX_EXACT_COUNT = 20_000
"""Number of queued jobs in one queue up to which they are counted; larger numbers are estimates."""

RangeName = Literal["15m", "1h", "6h", "24h"]


@dataclass(frozen=True, slots=True)
class ChartRange:
    """Period a page covers, and its buckets."""

    name: RangeName
    label: str
    phrase: str
    bucket_seconds: float
    buckets: int

    @property
    def minutes(self) -> int:
        return int(self.bucket_seconds * self.buckets) // 60

    def axis(self, begin: datetime) -> ChartBuckets:
        """Return the buckets of a chart that begins at `begin`."""
        return ChartBuckets(begin, self.bucket_seconds, self.buckets)

    def counts(self, queue: str | None = None, task: str | None = None) -> Query[BucketRow]:
        return metrics.counts(self.bucket_seconds, self.buckets, queue=queue, task=task)

    @property
    def choices(self) -> list[ChartRange]:
        """Ranges that the page offers."""
        return list(CHART_RANGES.values())


class RangeQuery(msgspec.Struct, forbid_unknown_fields=True):
    range: RangeName | None = None


CHART_RANGES: dict[RangeName, ChartRange] = {
    "15m": ChartRange("15m", "15 min", "15 minutes", 60.0, 15),
    "1h": ChartRange("1h", "1 h", "hour", 60.0, 60),
    "6h": ChartRange("6h", "6 h", "6 hours", 300.0, 72),
    "24h": ChartRange("24h", "24 h", "24 hours", 900.0, 96),
}


async def choose_range(
    context: OperationContext, name: RangeName | None, default: RangeName = "1h"
) -> ChartRange:
    """Return the requested range, or by default a range that fits the age of the data.

    If the statistics are younger than 15 minutes, the default is 15 minutes, so that they are visible.
    """
    if name is None:
        [[age]] = await context.read(metrics.history_seconds())
        is_new = age is None or age <= CHART_RANGES["15m"].minutes * 60
        name = "15m" if is_new else default
    return CHART_RANGES[name]


def sum_counts(buckets: Sequence[BucketRow]) -> JobCounts:
    """Return the sum of all buckets, and the maximum of each field named max_…."""
    sums = {
        name: (max if name.startswith("max_") else sum)(getattr(each, name) for each in buckets)
        for name in JobCounts.__struct_fields__
    }
    return JobCounts(**sums)


def throughput(chart_range: ChartRange, buckets: Sequence[BucketRow]) -> Markup:
    """Return a bar chart of the jobs finished per minute, by outcome."""
    minutes = chart_range.bucket_seconds / 60
    series = [
        ChartSeries("succeeded", [each.succeeded / minutes for each in buckets], "succeeded"),
        ChartSeries(
            "failed", [(each.failed + each.expired) / minutes for each in buckets], "failed"
        ),
        ChartSeries(
            "other", [(each.cancelled + each.skipped) / minutes for each in buckets], "other"
        ),
    ]
    title = f"Jobs ended a minute, the last {chart_range.phrase}"
    return Markup(
        bar_chart(
            chart_range.axis(buckets[0].at),
            series,
            title=title,
            format_value=format_figure,
            format_tick=format_short,
            empty="no job ended",
        )
    )


def waits(chart_range: ChartRange, buckets: Sequence[BucketRow]) -> Markup:
    """Return a chart of the time jobs were queued before they were claimed."""
    longest = [(each.wait_count and each.max_wait_seconds) or None for each in buckets]
    mean = [each.mean_wait_seconds for each in buckets]
    title = f"Time from queued to claimed, the last {chart_range.phrase}"
    axis = chart_range.axis(buckets[0].at)
    return _duration_chart(axis, longest, mean, title, "no job was claimed")


def runtimes(chart_range: ChartRange, buckets: Sequence[BucketRow]) -> Markup:
    """Return a chart of the duration of attempts."""
    longest = [(each.attempts and each.max_seconds) or None for each in buckets]
    mean = [each.mean_seconds for each in buckets]
    title = f"Time an attempt took, the last {chart_range.phrase}"
    axis = chart_range.axis(buckets[0].at)
    return _duration_chart(axis, longest, mean, title, "no attempt ended")


def depth(
    chart_range: ChartRange,
    begin: datetime,
    depths: Sequence[int | None],
    *,
    empty: str = "nothing was queued",
) -> Markup:
    """Return a chart of the number of queued jobs."""
    return Markup(
        line_chart(
            chart_range.axis(begin),
            [ChartSeries("queued", depths, "queued")],
            title=f"Jobs queued, the last {chart_range.phrase}",
            format_value=format_figure,
            format_tick=format_short,
            empty=empty,
            integers=True,
        )
    )


def draw_sparkline(name: str, values: Sequence[float | None], kind: str) -> Markup:
    return Markup(
        sparkline(ChartSeries(name, values, kind), title=name, format_value=format_figure)
    )


def _duration_chart(
    axis: ChartBuckets,
    longest: Sequence[float | None],
    mean: Sequence[float | None],
    title: str,
    empty: str,
) -> Markup:
    series = [ChartSeries("longest", longest, "longest"), ChartSeries("mean", mean, "mean")]
    return Markup(
        line_chart(
            axis, series, title=title, format_value=format_duration, empty=empty, durations=True
        )
    )


# Number formats


def format_figure(value: float) -> str:
    """Format a number with as many digits as are useful: `0.25`, `7.5`, `1,234`."""
    if value >= 100 or value == int(value):
        return format_count(value)
    return f"{value:.2g}" if value < 1 else f"{value:.1f}".removesuffix(".0")


def format_short(value: float) -> str:
    """Format a number for narrow places: `0.25`, `7.5`, `1.2k`, `25k`, `3M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.99995:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return format_figure(value)


def format_percent(share: float | None) -> str | None:
    """Format a share as `98%`. Only exactly 1 is shown as 100%, and only exactly 0 as 0%."""
    if share is None:
        return None
    if share in (0, 1):
        return f"{share:.0%}"
    return f"{min(max(share * 100, 0.1), 99.9):.1f}".removesuffix(".0") + "%"


def format_depth(queued: int) -> str:
    """Format a number of queued jobs, with ≈ if it is an estimate."""
    return (
        format_count(queued)
        if queued < MAX_EXACT_COUNT
        else f"≈\u202f{format_count(round(queued, -3))}"
    )


def time_before(now: datetime, seconds: float | None) -> datetime | None:
    """Return the time `seconds` ago, to the second: an unchanged value is not sent to the browser again."""
    if not seconds:
        return None
    return (now - timedelta(seconds=seconds)).replace(microsecond=0)
