"""What was counted, as pictures of the last hour, six or a day; and figures as pages write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from markupsafe import Markup

from rota.drawing.plot import Series, Stretches, bars, lines, spark
from rota.store import history
from rota.store.history import Counts, Stretch
from rota.store.query import Query
from rota.web.api.operations import Desk
from rota.web.dashboard.shown import number, span

COUNTED = 20_000
"""So many that are ready in one queue are counted; more are estimated."""

Within = Literal["15m", "1h", "6h", "24h"]


@dataclass(frozen=True, slots=True)
class Span:
    """How far back a page looks, and in what stretches."""

    name: Within
    label: str
    words: str
    step: float
    many: int

    @property
    def minutes(self) -> int:
        return int(self.step * self.many) // 60

    def counts(self, queue: str | None = None, task: str | None = None) -> Query[Stretch]:
        return history.counts(self.step, self.many, queue=queue, task=task)


SPANS: dict[Within, Span] = {
    "15m": Span("15m", "15 min", "15 minutes", 60.0, 15),
    "1h": Span("1h", "1 h", "hour", 60.0, 60),
    "6h": Span("6h", "6 h", "6 hours", 300.0, 72),
    "24h": Span("24h", "24 h", "24 hours", 900.0, 96),
}


async def looking_back(desk: Desk, within: Within | None, otherwise: Within = "1h") -> Span:
    """As far as was said. Where nothing was: of what has only begun, all there is, large enough to be
    seen."""
    if within is None:
        [[age]] = await desk.ask(history.begins())
        young = age is None or age <= SPANS["15m"].minutes * 60
        within = "15m" if young else otherwise
    return SPANS[within]


def total(found: Sequence[Stretch]) -> Counts:
    """What all stretches come to."""
    sums = {
        name: (max if name.startswith("longest") else sum)(getattr(each, name) for each in found)
        for name in Counts.__struct_fields__
    }
    return Counts(**sums)


def throughput(within: Span, found: Sequence[Stretch]) -> Markup:
    """How many jobs ended a minute, and how."""
    minutes = within.step / 60
    series = [
        Series("succeeded", [each.succeeded / minutes for each in found], "succeeded"),
        Series("failed", [(each.failed + each.expired) / minutes for each in found], "failed"),
        Series("other", [(each.cancelled + each.skipped) / minutes for each in found], "other"),
    ]
    title = f"Jobs ended a minute, the last {within.words}"
    return Markup(
        bars(
            _over(within, found), series, title=title, say=figure, mark=short, empty="no job ended"
        )
    )


def waits(within: Span, found: Sequence[Stretch]) -> Markup:
    """How long jobs were ready before somebody took them."""
    series = [
        Series("longest", _some(found, lambda each: each.waits and each.longest_wait), "longest"),
        Series("mean", [each.mean_wait for each in found], "mean"),
    ]
    title = f"Time from ready to taken, the last {within.words}"
    return _durations(within, found, series, title, "no job was taken")


def runtimes(within: Span, found: Sequence[Stretch]) -> Markup:
    """How long attempts took."""
    series = [
        Series("longest", _some(found, lambda each: each.attempts and each.longest), "longest"),
        Series("mean", [each.mean for each in found], "mean"),
    ]
    title = f"Time an attempt took, the last {within.words}"
    return _durations(within, found, series, title, "no attempt ended")


def depth(
    within: Span, begin: datetime, found: Sequence[int | None], *, empty: str = "nothing was ready"
) -> Markup:
    """How many jobs were ready."""
    series = [Series("ready", found, "ready")]
    stretches = Stretches(begin, within.step, within.many)
    title = f"Jobs ready, the last {within.words}"
    return Markup(
        lines(stretches, series, title=title, say=figure, mark=short, empty=empty, whole=True)
    )


def small(name: str, values: Sequence[float | None], kind: str) -> Markup:
    return Markup(spark(Series(name, values, kind), title=name, say=figure))


def _durations(
    within: Span, found: Sequence[Stretch], series: Sequence[Series], title: str, empty: str
) -> Markup:
    over = _over(within, found)
    return Markup(lines(over, series, title=title, say=span, empty=empty, durations=True))


def _over(within: Span, found: Sequence[Stretch]) -> Stretches:
    return Stretches(found[0].at, within.step, within.many)


def _some(found: Sequence[Stretch], value: Callable[[Stretch], float]) -> list[float | None]:
    return [value(each) or None for each in found]


# Figures


def figure(value: float) -> str:
    """`0.25`, `7.5`, `1,234`: as many digits as are worth reading."""
    if value >= 100 or value == int(value):
        return number(value)
    return f"{value:.2g}" if value < 1 else f"{value:.1f}".removesuffix(".0")


def short(value: float) -> str:
    """`0.25`, `7.5`, `1.2k`, `25k`, `3M`: where there is little room."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.99995:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return figure(value)


def percent(share: float | None) -> str | None:
    """`98%`; what is not all is never said to be 100%, and what is something never 0%."""
    if share is None:
        return None
    if share in (0, 1):
        return f"{share:.0%}"
    return f"{min(max(share * 100, 0.1), 99.9):.1f}".removesuffix(".0") + "%"


def deep(ready: int) -> str:
    """How many are ready: about so many, where that was estimated."""
    return number(ready) if ready < COUNTED else f"≈\u202f{number(round(ready, -3))}"


def since(now: datetime, seconds: float | None) -> datetime | None:
    """When that was, to the second: what does not change is not shown anew."""
    if not seconds:
        return None
    return (now - timedelta(seconds=seconds)).replace(microsecond=0)
