"""Figures over time as SVG pictures: bars, lines, and one line small enough to stand in a table.

They are drawn with classes alone and have no colours of their own: the page's sheet gives those, by day
and by night, so nothing here needs an inline style. Time runs to the right and ends now; what is written
below is how long ago, the same wherever the reader is. A value that is None was seen by nobody, and leaves
a gap.

Each picture says its figures to whoever cannot see it, and each stretch of it when it is pointed at. Names
are text, whatever is in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rota.drawing.marks import number, said

Say = Callable[[float], str]
"""A value as people write it."""

WIDTH, HEIGHT = 360.0, 172.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 6.0, 10.0, 24.0
FLOOR = HEIGHT - BOTTOM
WIDE = WIDTH - LEFT - RIGHT

SPARK_WIDTH, SPARK_HEIGHT = 72.0, 24.0

TICKS = 4
"""Lines across, at most, besides the floor."""

MARKS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 86400.0, 864000.0, 8640000.0)
"""Seconds that a scale of durations may begin, end and be marked at."""

BACK = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Seconds between two marks of time."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one thing, one of each stretch, the first first."""

    name: str
    values: Sequence[float | None]
    kind: str = ""
    """The class it is drawn with; a state's word has that state's colour."""

    @property
    def seen(self) -> list[float]:
        return [value for value in self.values if value is not None]


@dataclass(frozen=True, slots=True)
class Stretches:
    """When the values are from: stretches of `step` seconds, the first of which begins at `begin`."""

    begin: datetime
    step: float
    many: int

    def said(self, at: int) -> str:
        seconds = self.begin.timestamp() + at * self.step
        words = datetime.fromtimestamp(seconds, UTC).strftime("%H:%M UTC")
        return f"{words}, so far" if at == self.many - 1 else words


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a value is drawn, and which values are marked."""

    marks: list[float]
    low: float
    high: float
    is_log: bool

    def y(self, value: float) -> float:
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return FLOOR - (FLOOR - TOP) * (value - low) / (high - low)


def ticks(largest: float, most: int = TICKS, *, whole: bool = False) -> list[float]:
    """From 0 to at least the largest, in round steps, no more than so many of them; `whole`: not of less
    than one."""
    if not largest > 0 or not math.isfinite(largest):
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(largest / most))
    steps = (size * each for each in (1, 2, 5, 10, 20))
    step = next(each for each in steps if each * most >= largest * 0.999999)
    if whole:
        step = max(step, 1.0)
    return [step * each for each in range(math.ceil(largest / step - 1e-6) + 1)]


def log_marks(least: float, largest: float) -> list[float]:
    """Marks of durations around these two: where a picture of them begins, ends, and is marked between."""
    begin = max((place for place, mark in enumerate(MARKS) if mark <= least), default=0)
    end = min(
        (place for place, mark in enumerate(MARKS) if mark >= largest), default=len(MARKS) - 1
    )
    begin = min(begin, len(MARKS) - 2)
    return list(MARKS[begin : max(end, begin + 1) + 1])


def bars(
    stretches: Stretches,
    series: Sequence[Series],
    *,
    title: str,
    say: Say,
    mark: Say | None = None,
    empty: str,
) -> str:
    """One bar a stretch, the series piled up in it. The last stretch is not over. `mark`: how a value is
    written beside the picture, where there is little room."""
    piled = [sum(each.values[at] or 0 for each in series) for at in range(stretches.many)]
    scale = _linear(max(piled, default=0.0))
    return _picture("bars", stretches, series, title, say, mark, scale, empty, _piles)


def lines(
    stretches: Stretches,
    series: Sequence[Series],
    *,
    title: str,
    say: Say,
    mark: Say | None = None,
    empty: str,
    durations: bool = False,
    whole: bool = False,
) -> str:
    """A line a series. `whole`: of things that are counted; `durations`: of seconds, from milliseconds to
    days on one picture, so each mark is about ten times the one below it."""
    seen = [value for each in series for value in each.seen]
    above = [value for value in seen if value > 0]
    if durations:
        marks = log_marks(min(above, default=0.01), max(above, default=1.0))
        scale = _Scale(marks, marks[0], marks[-1], is_log=True)
    else:
        scale = _linear(max(seen, default=0.0), whole=whole)
    return _picture("lines", stretches, series, title, say, mark, scale, empty, _drawn)


def spark(series: Series, *, title: str, say: Say) -> str:
    """One small line, for a row of a table; its figures are beside it, and said."""
    seen = series.seen
    most = max(seen, default=0.0)
    room = SPARK_HEIGHT - 4

    def point(at: int, value: float) -> tuple[float, float]:
        x = 2 + (SPARK_WIDTH - 4) * at / max(len(series.values) - 1, 1)
        return x, SPARK_HEIGHT - 2 - (room * value / most if most > 0 else 0.0)

    words = f"{title}: nothing is known" if not seen else f"{title}: {_told(series, say)}"
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="spark {said(series.kind)}" role="img" '
        f'aria-label="{said(words)}" width="{number(SPARK_WIDTH)}" height="{number(SPARK_HEIGHT)}" '
        f'viewBox="0 0 {number(SPARK_WIDTH)} {number(SPARK_HEIGHT)}"><title>{said(words)}</title>'
    ]
    made += _strokes(series.values, point, SPARK_HEIGHT - 2)
    made.append("</svg>")
    return "".join(made)


def _linear(largest: float, *, whole: bool = False) -> _Scale:
    marks = ticks(largest, whole=whole)
    return _Scale(marks, 0.0, marks[-1], is_log=False)


Draw = Callable[[Stretches, Sequence[Series], _Scale], Iterator[str]]


def _picture(
    kind: str,
    stretches: Stretches,
    series: Sequence[Series],
    title: str,
    say: Say,
    mark: Say | None,
    scale: _Scale,
    empty: str,
    draw: Draw,
) -> str:
    nothing = not any(value for each in series for value in each.seen)
    words = empty if nothing else "; ".join(f"{each.name} {_told(each, say)}" for each in series)
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot {kind}" role="img" '
        f'aria-label="{said(f"{title}: {words}")}" viewBox="0 0 {number(WIDTH)} {number(HEIGHT)}">'
    ]
    made += _across(scale, mark or say) if not nothing else []
    made += _along(stretches)
    if nothing:
        made.append(
            f'<text class="nothing" x="{number(LEFT + WIDE / 2)}" y="{number((TOP + FLOOR) / 2)}" '
            f'text-anchor="middle">{said(empty)}</text>'
        )
    else:
        made += draw(stretches, series, scale)
        made += _pointed_at(stretches, series, say)
    made.append("</svg>")
    return "\n".join(made)


def _told(series: Series, say: Say) -> str:
    """Its last value and its largest, for whoever cannot see it."""
    seen = series.seen
    if not seen:
        return "not known"
    last = next(value for value in reversed(series.values) if value is not None)
    return f"{say(last)} now, at most {say(max(seen))}"


def _across(scale: _Scale, say: Say) -> Iterator[str]:
    # As many marks as fit; the floor and the top are always there.
    every = math.ceil((len(scale.marks) - 1) / (TICKS + 1)) or 1
    for place, mark in enumerate(scale.marks):
        if place % every and mark != scale.marks[-1]:
            continue
        y = scale.y(mark)
        kind = "floor" if place == 0 else "rule"
        yield (
            f'<line class="{kind}" x1="{number(LEFT)}" x2="{number(WIDTH - RIGHT)}" '
            f'y1="{number(y)}" y2="{number(y)}"/>'
        )
        yield (
            f'<text class="tick" x="{number(LEFT - 6)}" y="{number(y + 3.5)}" text-anchor="end">'
            f"{said(say(mark))}</text>"
        )


def _along(stretches: Stretches) -> Iterator[str]:
    whole = stretches.step * stretches.many
    apart = next((each for each in BACK if whole / each <= TICKS + 0.5), BACK[-1])
    back = 0.0
    while back <= whole + 1:
        x = LEFT + WIDE * (1 - back / whole)
        anchor = "end" if back == 0 else "start" if back >= whole - 1 else "middle"
        words = "now" if back == 0 else _ago(back) + (" ago" if anchor == "start" else "")
        yield (
            f'<text class="tick" x="{number(x)}" y="{number(HEIGHT - 8)}" text-anchor="{anchor}">'
            f"{words}</text>"
        )
        back += apart


def _ago(seconds: float) -> str:
    if seconds % 3600 == 0:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 60:.0f} min"


def _piles(stretches: Stretches, series: Sequence[Series], scale: _Scale) -> Iterator[str]:
    pitch = WIDE / stretches.many
    width = max(pitch - 1.5, pitch * 0.6)
    for at in range(stretches.many):
        under = 0.0
        now = " open" if at == stretches.many - 1 else ""
        for each in series:
            value = each.values[at] or 0.0
            if value <= 0:
                continue
            y, foot = scale.y(under + value), scale.y(under)
            # What is there is seen, however little it is beside the rest.
            high = max(foot - y, 1.5)
            yield (
                f'<rect class="pile {said(each.kind)}{now}" x="{number(LEFT + pitch * at)}" '
                f'y="{number(foot - high)}" width="{number(width)}" height="{number(high)}"/>'
            )
            under += value


def _drawn(stretches: Stretches, series: Sequence[Series], scale: _Scale) -> Iterator[str]:
    pitch = WIDE / stretches.many

    def point(at: int, value: float) -> tuple[float, float]:
        return LEFT + pitch * (at + 0.5), scale.y(value)

    for each in series:
        yield f'<g class="series {said(each.kind)}">'
        yield from _strokes(each.values, point, FLOOR)
        yield "</g>"


Point = Callable[[int, float], tuple[float, float]]


def _strokes(values: Sequence[float | None], point: Point, floor: float) -> Iterator[str]:
    """A line for as long as values follow each other, with what is below it; one alone is a dot."""
    for part in _parts(values):
        places = [point(at, value) for at, value in part]
        if len(places) == 1:
            [(x, y)] = places
            yield f'<circle class="dot" cx="{number(x)}" cy="{number(y)}" r="2"/>'
            continue
        path = "L".join(f"{number(x)} {number(y)}" for x, y in places)
        first, last = (f"{number(x)} {number(floor)}" for x in (places[0][0], places[-1][0]))
        yield f'<path class="area" d="M{first}L{path}L{last}Z"/>'
        yield f'<path class="line" d="M{path}" fill="none"/>'


def _parts(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    part: list[tuple[int, float]] = []
    for at, value in enumerate(values):
        if value is not None:
            part.append((at, value))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _pointed_at(stretches: Stretches, series: Sequence[Series], say: Say) -> Iterator[str]:
    """Over each stretch, as high as the picture, what it says when it is pointed at."""
    pitch = WIDE / stretches.many
    for at in range(stretches.many):
        told = [
            f"{each.name} {'not known' if value is None else say(value)}"
            for each in series
            for value in (each.values[at],)
        ]
        words = "\n".join((stretches.said(at), *told))
        yield (
            f'<rect class="look" x="{number(LEFT + pitch * at)}" y="{number(TOP)}" width="{number(pitch)}" '
            f'height="{number(FLOOR - TOP)}" fill="transparent"><title>{said(words)}</title></rect>'
        )
