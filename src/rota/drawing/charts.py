"""Charts over time as SVG: bars, lines, and sparklines for table rows.

Charts have CSS classes and no colours or inline styles; the style sheet of the page defines the colours of
light and dark mode. Time runs to the right and ends now. The axis shows relative times, which are the same
in every time zone. A value of None is unknown and leaves a gap.

Each chart has a text alternative with its values, and a tooltip for each bucket. Names are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rota.drawing.svg_text import escape_text, format_number, numbers, open_svg

FormatValue = Callable[[float], str]
"""Formats a value for people."""

WIDTH, HEIGHT = 360.0, 172.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 6.0, 10.0, 24.0
PLOT_BOTTOM = HEIGHT - BOTTOM
PLOT_WIDTH = WIDTH - LEFT - RIGHT

SPARK_WIDTH, SPARK_HEIGHT = 72.0, 24.0

MAX_TICKS = 4
"""Limit of horizontal lines in addition to the baseline."""

DURATION_MARKS_SECONDS = (
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
    60.0,
    600.0,
    3600.0,
    36000.0,
    86400.0,
    864000.0,
    8640000.0,
)
"""Possible ends and marks of a scale of durations."""

TIME_MARKS_SECONDS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Possible distances between two marks of the time axis."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """Values of one quantity, one for each bucket, in order of time."""

    name: str
    values: Sequence[float | None]
    kind: str = ""
    """CSS class of the series; a state's name gives that state's colour."""

    @property
    def known_values(self) -> list[float]:
        return [value for value in self.values if value is not None]


@dataclass(frozen=True, slots=True)
class ChartBuckets:
    """Buckets of `step` seconds, the first of which begins at `begin`."""

    begin: datetime
    step: float
    count: int

    def label(self, index: int) -> str:
        seconds = self.begin.timestamp() + index * self.step
        text = datetime.fromtimestamp(seconds, UTC).strftime("%H:%M UTC")
        return f"{text}, so far" if index == self.count - 1 else text


@dataclass(frozen=True, slots=True)
class _ValueScale:
    """Vertical scale: positions of values, and the values that are marked."""

    marks: list[float]
    low: float
    high: float
    is_log: bool

    def y(self, value: float) -> float:
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return PLOT_BOTTOM - (PLOT_BOTTOM - TOP) * (value - low) / (high - low)


def tick_values(maximum: float, limit: int = MAX_TICKS, *, integers: bool = False) -> list[float]:
    """Return round tick values from 0 to at least `maximum`, with at most `limit` steps.

    With `integers`, a step is at least 1.
    """
    if not maximum > 0 or not math.isfinite(maximum):
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(maximum / limit))
    steps = (size * each for each in (1, 2, 5, 10, 20))
    step = next(each for each in steps if each * limit >= maximum * 0.999999)
    if integers:
        step = max(step, 1.0)
    return [step * each for each in range(math.ceil(maximum / step - 1e-6) + 1)]


def log_marks(minimum: float, maximum: float) -> list[float]:
    """Return the duration marks that enclose both values, as ends and marks of a logarithmic scale."""
    begin = max(
        (index for index, mark in enumerate(DURATION_MARKS_SECONDS) if mark <= minimum), default=0
    )
    end = min(
        (index for index, mark in enumerate(DURATION_MARKS_SECONDS) if mark >= maximum),
        default=len(DURATION_MARKS_SECONDS) - 1,
    )
    begin = min(begin, len(DURATION_MARKS_SECONDS) - 2)
    return list(DURATION_MARKS_SECONDS[begin : max(end, begin + 1) + 1])


def bar_chart(
    buckets: ChartBuckets,
    series: Sequence[ChartSeries],
    *,
    title: str,
    format_value: FormatValue,
    format_tick: FormatValue | None = None,
    empty: str,
) -> str:
    """Draw one bar for each bucket, with the series stacked. The last bucket is incomplete.

    `format_tick` formats the values of the axis, where space is limited.
    """
    totals = [sum(each.values[index] or 0 for each in series) for index in range(buckets.count)]
    scale = _linear_scale(max(totals, default=0.0))
    return _chart(
        "bars", buckets, series, title, format_value, format_tick, scale, empty, _stacked_bars
    )


def line_chart(
    buckets: ChartBuckets,
    series: Sequence[ChartSeries],
    *,
    title: str,
    format_value: FormatValue,
    format_tick: FormatValue | None = None,
    empty: str,
    durations: bool = False,
    integers: bool = False,
) -> str:
    """Draw one line for each series.

    With `integers`, ticks are whole numbers. With `durations`, values are seconds on a logarithmic scale
    from milliseconds to days, where each mark is about ten times the previous one.
    """
    known_values = [value for each in series for value in each.known_values]
    positive = [value for value in known_values if value > 0]
    if durations:
        marks = log_marks(min(positive, default=0.01), max(positive, default=1.0))
        scale = _ValueScale(marks, marks[0], marks[-1], is_log=True)
    else:
        scale = _linear_scale(max(known_values, default=0.0), integers=integers)
    return _chart(
        "lines", buckets, series, title, format_value, format_tick, scale, empty, _draw_lines
    )


def sparkline(series: ChartSeries, *, title: str, format_value: FormatValue) -> str:
    """Draw one small line for a table row, with its values as tooltip and text alternative."""
    known_values = series.known_values
    maximum = max(known_values, default=0.0)
    room = SPARK_HEIGHT - 4

    def point(at: int, value: float) -> tuple[float, float]:
        x = 2 + (SPARK_WIDTH - 4) * at / max(len(series.values) - 1, 1)
        return x, SPARK_HEIGHT - 2 - (room * value / maximum if maximum > 0 else 0.0)

    description = (
        f"{title}: nothing is known"
        if not known_values
        else f"{title}: {_describe_series(series, format_value)}"
    )
    start = open_svg(f"spark {series.kind}", description, SPARK_WIDTH, SPARK_HEIGHT)
    strokes = _strokes(series.values, point, SPARK_HEIGHT - 2)
    return "".join((start, f"<title>{escape_text(description)}</title>", *strokes, "</svg>"))


def _linear_scale(maximum: float, *, integers: bool = False) -> _ValueScale:
    marks = tick_values(maximum, integers=integers)
    return _ValueScale(marks, 0.0, marks[-1], is_log=False)


Draw = Callable[[ChartBuckets, Sequence[ChartSeries], _ValueScale], Iterator[str]]


def _chart(
    kind: str,
    buckets: ChartBuckets,
    series: Sequence[ChartSeries],
    title: str,
    format_value: FormatValue,
    format_tick: FormatValue | None,
    scale: _ValueScale,
    empty: str,
    draw: Draw,
) -> str:
    is_empty = not any(value for each in series for value in each.known_values)
    description = (
        empty
        if is_empty
        else "; ".join(f"{each.name} {_describe_series(each, format_value)}" for each in series)
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot {kind}" role="img" '
        f'aria-label="{escape_text(f"{title}: {description}")}" viewBox="0 0 '
        f'{format_number(WIDTH)} {format_number(HEIGHT)}">'
    ]
    parts += _value_axis(scale, format_tick or format_value) if not is_empty else []
    parts += _time_axis(buckets)
    if is_empty:
        center = numbers(x=LEFT + PLOT_WIDTH / 2, y=(TOP + PLOT_BOTTOM) / 2)
        parts.append(
            f'<text class="nothing" {center} text-anchor="middle">{escape_text(empty)}</text>'
        )
    else:
        parts += draw(buckets, series, scale)
        parts += _tooltips(buckets, series, format_value)
    parts.append("</svg>")
    return "\n".join(parts)


def _describe_series(series: ChartSeries, format_value: FormatValue) -> str:
    """Return the last and the largest value as text, for screen readers."""
    known_values = series.known_values
    if not known_values:
        return "not known"
    last = next(value for value in reversed(series.values) if value is not None)
    return f"{format_value(last)} now, at most {format_value(max(known_values))}"


def _value_axis(scale: _ValueScale, format_value: FormatValue) -> Iterator[str]:
    # Draw as many marks as fit, and always the first and the last.
    every = math.ceil((len(scale.marks) - 1) / (MAX_TICKS + 1)) or 1
    for index, mark in enumerate(scale.marks):
        if index % every and mark != scale.marks[-1]:
            continue
        y = scale.y(mark)
        kind = "floor" if index == 0 else "rule"
        yield f'<line class="{kind}" {numbers(x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)}/>'
        yield _tick(LEFT - 6, y + 3.5, "end", escape_text(format_value(mark)))


def _tick(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="tick" {numbers(x=x, y=y)} text-anchor="{anchor}">{text}</text>'


def _time_axis(buckets: ChartBuckets) -> Iterator[str]:
    total_seconds = buckets.step * buckets.count
    step = next(
        (each for each in TIME_MARKS_SECONDS if total_seconds / each <= MAX_TICKS + 0.5),
        TIME_MARKS_SECONDS[-1],
    )
    seconds_ago = 0.0
    while seconds_ago <= total_seconds + 1:
        x = LEFT + PLOT_WIDTH * (1 - seconds_ago / total_seconds)
        anchor = (
            "end" if seconds_ago == 0 else "start" if seconds_ago >= total_seconds - 1 else "middle"
        )
        text = (
            "now"
            if seconds_ago == 0
            else _format_ago(seconds_ago) + (" ago" if anchor == "start" else "")
        )
        yield _tick(x, HEIGHT - 8, anchor, text)
        seconds_ago += step


def _format_ago(seconds: float) -> str:
    if seconds % 3600 == 0:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 60:.0f} min"


def _stacked_bars(
    buckets: ChartBuckets, series: Sequence[ChartSeries], scale: _ValueScale
) -> Iterator[str]:
    pitch = PLOT_WIDTH / buckets.count
    width = max(pitch - 1.5, pitch * 0.6)
    for index in range(buckets.count):
        base = 0.0
        open_class = " open" if index == buckets.count - 1 else ""
        for each in series:
            value = each.values[index] or 0.0
            if value <= 0:
                continue
            y, bottom = scale.y(base + value), scale.y(base)
            # A value above zero is visible, however small it is.
            height = max(bottom - y, 1.5)
            place = numbers(x=LEFT + pitch * index, y=bottom - height, width=width, height=height)
            yield f'<rect class="pile {escape_text(each.kind)}{open_class}" {place}/>'
            base += value


def _draw_lines(
    buckets: ChartBuckets, series: Sequence[ChartSeries], scale: _ValueScale
) -> Iterator[str]:
    pitch = PLOT_WIDTH / buckets.count

    def point(at: int, value: float) -> tuple[float, float]:
        return LEFT + pitch * (at + 0.5), scale.y(value)

    for each in series:
        yield f'<g class="series {escape_text(each.kind)}">'
        yield from _strokes(each.values, point, PLOT_BOTTOM)
        yield "</g>"


ToPoint = Callable[[int, float], tuple[float, float]]


def _strokes(values: Sequence[float | None], point: ToPoint, bottom: float) -> Iterator[str]:
    """Yield a line with the area below it for each run of known values; a single value becomes a dot."""
    for segment in _segments(values):
        points = [point(index, value) for index, value in segment]
        if len(points) == 1:
            [(x, y)] = points
            yield f'<circle class="dot" {numbers(cx=x, cy=y, r=2)}/>'
            continue
        path = "L".join(f"{format_number(x)} {format_number(y)}" for x, y in points)
        first, last = (
            f"{format_number(x)} {format_number(bottom)}" for x in (points[0][0], points[-1][0])
        )
        yield f'<path class="area" d="M{first}L{path}L{last}Z"/>'
        yield f'<path class="line" d="M{path}" fill="none"/>'


def _segments(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    segment: list[tuple[int, float]] = []
    for index, value in enumerate(values):
        if value is not None:
            segment.append((index, value))
        elif segment:
            yield segment
            segment = []
    if segment:
        yield segment


def _tooltips(
    buckets: ChartBuckets, series: Sequence[ChartSeries], format_value: FormatValue
) -> Iterator[str]:
    """Yield an invisible rectangle with a tooltip over each bucket."""
    pitch = PLOT_WIDTH / buckets.count
    for index in range(buckets.count):
        known = ((each.name, each.values[index]) for each in series)
        values = [
            f"{name} {'not known' if value is None else format_value(value)}"
            for name, value in known
        ]
        text = "\n".join((buckets.label(index), *values))
        place = numbers(x=LEFT + pitch * index, y=TOP, width=pitch, height=PLOT_BOTTOM - TOP)
        yield f'<rect class="look" {place} fill="transparent"><title>{escape_text(text)}</title></rect>'
