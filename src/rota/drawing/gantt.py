"""Gantt chart: one row for each job, with its bars along a common time axis.

Queued, running, sleeping and failed attempts differ in shape, not only in colour. A bar is at least six
pixels wide, so that it can be seen and pointed at. Colours are CSS classes, defined by the style sheet of
the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from rota.drawing.svg_text import escape_text, format_number, numbers, open_svg, truncate

BarKind = Literal["queued", "running", "sleeping", "attempt", "mark"]
"""queued; running or finished; sleeping or waiting for a signal; an earlier attempt; a point in time."""

WIDTH = 1_080.0
NAMES_WIDTH = 210.0
"""Width of the column of names."""
ROW_HEIGHT = 26.0
HEADER_HEIGHT = 30.0
MARGIN = 16.0
"""Room at the right for bars that are drawn wider than their duration."""
MIN_BAR_WIDTH = 6.0
MAX_TICKS = 8
ICON_PREFIX = "i-state"
"""Prefix of the page's SVG symbols, one for each state."""
STRIPES_ID = "gantt-stripes"


class GanttBar(NamedTuple):
    kind: BarKind
    start: datetime
    end: datetime
    state: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class GanttRow:
    key: str
    name: str
    state: str
    bars: Sequence[GanttBar]
    href: str = ""
    is_nested: bool = False
    """True if the row is part of the row above."""


def gantt(
    rows: Sequence[GanttRow],
    start: datetime,
    end: datetime,
    *,
    now: datetime | None = None,
    selected: str = "",
    title: str = "Timeline",
) -> str:
    """Draw the chart as one SVG, with a line at `now` if it is given."""
    end = max(end, start + timedelta(milliseconds=1))
    scale = _TimeScale(start, end)
    height = HEADER_HEIGHT + ROW_HEIGHT * len(rows) + 8
    lines = [
        open_svg("gantt", title, WIDTH, height, role="group"),
        f"<defs>{_STRIPES_PATTERN}</defs>",
        *_axis(scale, height),
    ]
    for index, row in enumerate(rows):
        lines += _row(row, HEADER_HEIGHT + ROW_HEIGHT * index, scale, selected=row.key == selected)
    if now is not None and start <= now <= end:
        line = _vertical_line(scale.x(now), HEADER_HEIGHT - 6, height)
        lines.append(f'<path class="now" {line}/>')
    lines.append("</svg>")
    return "\n".join(lines)


_STRIPES_PATTERN = (
    f'<pattern id="{STRIPES_ID}" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="stripe" d="M0 0v6"/></pattern>'
)


class _TimeScale:
    def __init__(self, start: datetime, end: datetime) -> None:
        self.start = start
        self.seconds = (end - start).total_seconds()
        self._pixels_per_second = (WIDTH - NAMES_WIDTH - MARGIN) / self.seconds

    def x(self, at: datetime) -> float:
        seconds = (at - self.start).total_seconds()
        return NAMES_WIDTH + min(max(seconds, 0.0), self.seconds) * self._pixels_per_second

    def x_after(self, seconds: float) -> float:
        return NAMES_WIDTH + seconds * self._pixels_per_second


def _vertical_line(x: float, top: float, height: float) -> str:
    return f'd="M{format_number(x)} {format_number(top)}V{format_number(height - 4)}"'


def _axis(scale: _TimeScale, height: float) -> Iterator[str]:
    step = _axis_step(scale.seconds)
    yield '<g class="axis">'
    for index in range(int(scale.seconds / step) + 1):
        x = scale.x_after(index * step)
        yield f"<path {_vertical_line(x, HEADER_HEIGHT - 4, height)}/>"
        label = _format_elapsed(index * step, step)
        yield f"<text {numbers(x=x, y=HEADER_HEIGHT - 11)}>{label}</text>"
    yield "</g>"


_AXIS_STEPS_SECONDS = (
    *(10.0**power * times for power in (-3, -2, -1, 0) for times in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0),
    *(21_600.0, 43_200.0, *(86_400.0 * days for days in (1, 2, 7, 14, 28, 91, 365))),
)


def _axis_step(seconds: float) -> float:
    """Return a round step that gives at most MAX_TICKS labels."""
    return next(
        (each for each in _AXIS_STEPS_SECONDS if seconds / each <= MAX_TICKS), seconds / MAX_TICKS
    )


def _format_elapsed(seconds: float, step: float) -> str:
    """Format the time since the start, as precisely as the steps of the axis."""
    if seconds == 0:
        return "0"
    if step < 1:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    whole = round(seconds)
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{minutes}:{whole % 60:02} min"
    if whole < 86_400:
        return f"{hours}:{minutes:02} h"
    return f"{days} d {hours} h" if hours else f"{days} d"


def _row(row: GanttRow, y: float, scale: _TimeScale, *, selected: bool) -> Iterator[str]:
    state = row.state or "plain"
    tag, href = ("a", f' href="{escape_text(row.href)}"') if row.href else ("g", "")
    current = ' aria-current="true"' if selected else ""
    nested = " inner" if row.is_nested else ""
    yield (
        f'<{tag} class="line {state}{nested}" data-key="{escape_text(row.key)}"{current}{href}>'
        f"<title>{escape_text(f'{row.name}, {row.state}' if row.state else row.name)}</title>"
        f'<rect class="band" {numbers(x=0, y=y, width=WIDTH, height=ROW_HEIGHT, rx=5)}/>'
    )
    left = 26.0 if row.is_nested else 8.0
    if row.state:
        place = numbers(x=left, y=y + 6, width=14, height=14)
        yield f'<use class="sign" href="#{ICON_PREFIX}-{state}" {place}/>'
    max_chars = 21 if row.is_nested else 24
    yield (
        f'<text class="name" {numbers(x=left + 21, y=y + 17)}>'
        f"{escape_text(truncate(row.name, max_chars))}</text>"
    )
    for bar in sorted(row.bars, key=lambda bar: _DRAW_ORDER[bar.kind]):
        yield _bar(bar, y, scale)
    yield f"</{tag}>"


_DRAW_ORDER = {"queued": 0, "sleeping": 1, "attempt": 2, "running": 3, "mark": 4}
_BAR_HEIGHTS = {"queued": 4.0, "sleeping": 12.0, "attempt": 10.0, "running": 14.0, "mark": 14.0}


def _bar(bar: GanttBar, y: float, scale: _TimeScale) -> str:
    left, right = scale.x(bar.start), scale.x(bar.end)
    width = max(right - left, MIN_BAR_WIDTH)
    height = _BAR_HEIGHTS[bar.kind]
    top, radius = y + (ROW_HEIGHT - height) / 2, min(3.0, height / 2)
    shape = numbers(x=left, y=top, width=width, height=height, rx=radius)
    fill = f' fill="url(#{STRIPES_ID})"' if bar.kind == "sleeping" else ""
    hint = f"<title>{escape_text(bar.hint)}, {_format_duration(bar)}</title>" if bar.hint else ""
    return f'<rect class="stretch of-{bar.kind} {bar.state or "plain"}" {shape}{fill}>{hint}</rect>'


def _format_duration(bar: GanttBar) -> str:
    seconds = (bar.end - bar.start).total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{_format_elapsed(seconds, 1)}"
