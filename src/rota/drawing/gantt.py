"""What took when: a line for each job, its bars along one axis of time.

Waiting for a worker, running, sleeping and attempts that failed are drawn differently, by shape and not
only by colour. Nothing is too short to be seen and to be pointed at: a bar is at least six pixels wide.
Colours are classes, for the sheet of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from rota.drawing.marks import cut, number, said

Kind = Literal["queued", "running", "asleep", "attempt", "mark"]
"""It waits for its turn; runs, or has run; sleeps or waits for somebody; an attempt before the last; one
moment."""

WIDTH = 1_080.0
NAMES = 210.0
"""What the names take of it."""
ROW = 26.0
HEAD = 30.0
MARGIN = 16.0
"""At the right: room for what is wider than it was long."""
SHORTEST = 6.0
"""Pixels."""
TICKS = 8
ICONS = "i-state"
"""Symbols of the page."""
STRIPES = "gantt-stripes"


class Bar(NamedTuple):
    kind: Kind
    start: datetime
    end: datetime
    state: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    name: str
    state: str
    bars: Sequence[Bar]
    href: str = ""
    inner: bool = False
    """A part of the row above."""


def gantt(
    rows: Sequence[Row],
    start: datetime,
    end: datetime,
    *,
    now: datetime | None = None,
    chosen: str = "",
    title: str = "Timeline",
) -> str:
    """One SVG. `now`: where to draw it, while something goes on."""
    end = max(end, start + timedelta(milliseconds=1))
    scale = _Scale(start, end)
    height = HEAD + ROW * len(rows) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gantt" role="group" aria-label="{said(title)}" '
        f'width="{number(WIDTH)}" height="{number(height)}" '
        f'viewBox="0 0 {number(WIDTH)} {number(height)}">',
        f"<defs>{_HATCH}</defs>",
        *_axis(scale, height),
    ]
    for place, row in enumerate(rows):
        lines += _row(row, HEAD + ROW * place, scale, chosen=row.key == chosen)
    if now is not None and start <= now <= end:
        x = number(scale.x(now))
        lines.append(f'<path class="now" d="M{x} {number(HEAD - 6)}V{number(height - 4)}"/>')
    lines.append("</svg>")
    return "\n".join(lines)


_HATCH = (
    f'<pattern id="{STRIPES}" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="stripe" d="M0 0v6"/></pattern>'
)


class _Scale:
    def __init__(self, start: datetime, end: datetime) -> None:
        self.start = start
        self.seconds = (end - start).total_seconds()
        self._pixels = (WIDTH - NAMES - MARGIN) / self.seconds

    def x(self, at: datetime) -> float:
        seconds = (at - self.start).total_seconds()
        return NAMES + min(max(seconds, 0.0), self.seconds) * self._pixels

    def after(self, seconds: float) -> float:
        return NAMES + seconds * self._pixels


def _axis(scale: _Scale, height: float) -> Iterator[str]:
    step = _step(scale.seconds)
    yield '<g class="axis">'
    for place in range(int(scale.seconds / step) + 1):
        x = scale.after(place * step)
        yield f'<path d="M{number(x)} {number(HEAD - 4)}V{number(height - 4)}"/>'
        yield f'<text x="{number(x)}" y="{number(HEAD - 11)}">{_clock(place * step, step)}</text>'
    yield "</g>"


_STEPS = (
    *(10.0**power * times for power in (-3, -2, -1, 0) for times in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0),
    *(21_600.0, 43_200.0, *(86_400.0 * days for days in (1, 2, 7, 14, 28, 91, 365))),
)


def _step(seconds: float) -> float:
    """A round time, so many of which fill the axis without crowding it."""
    return next((each for each in _STEPS if seconds / each <= TICKS), seconds / TICKS)


def _clock(seconds: float, step: float) -> str:
    """How long after the start, as finely as the steps are."""
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


def _row(row: Row, y: float, scale: _Scale, *, chosen: bool) -> Iterator[str]:
    state = row.state or "plain"
    tag, href = ("a", f' href="{said(row.href)}"') if row.href else ("g", "")
    here = ' aria-current="true"' if chosen else ""
    inner = " inner" if row.inner else ""
    yield (
        f'<{tag} class="line {state}{inner}" data-key="{said(row.key)}"{here}{href}>'
        f"<title>{said(f'{row.name}, {row.state}' if row.state else row.name)}</title>"
        f'<rect class="band" x="0" y="{number(y)}" width="{number(WIDTH)}" height="{number(ROW)}" rx="5"/>'
    )
    left = 26.0 if row.inner else 8.0
    if row.state:
        yield (
            f'<use class="sign" href="#{ICONS}-{state}" x="{number(left)}" y="{number(y + 6)}" '
            f'width="14" height="14"/>'
        )
    letters = 21 if row.inner else 24
    yield (
        f'<text class="name" x="{number(left + 21)}" y="{number(y + 17)}">'
        f"{said(cut(row.name, letters))}</text>"
    )
    for bar in sorted(row.bars, key=lambda bar: _DEPTH[bar.kind]):
        yield _bar(bar, y, scale)
    yield f"</{tag}>"


_DEPTH = {"queued": 0, "asleep": 1, "attempt": 2, "running": 3, "mark": 4}
_TALL = {"queued": 4.0, "asleep": 12.0, "attempt": 10.0, "running": 14.0, "mark": 14.0}


def _bar(bar: Bar, y: float, scale: _Scale) -> str:
    left, right = scale.x(bar.start), scale.x(bar.end)
    wide = max(right - left, SHORTEST)
    tall = _TALL[bar.kind]
    shape = (
        f'x="{number(left)}" y="{number(y + (ROW - tall) / 2)}" width="{number(wide)}" '
        f'height="{number(tall)}" rx="{number(min(3.0, tall / 2))}"'
    )
    hatch = f' fill="url(#{STRIPES})"' if bar.kind == "asleep" else ""
    hint = f"<title>{said(bar.hint)}, {_long(bar)}</title>" if bar.hint else ""
    return (
        f'<rect class="stretch of-{bar.kind} {bar.state or "plain"}" {shape}{hatch}>{hint}</rect>'
    )


def _long(bar: Bar) -> str:
    seconds = (bar.end - bar.start).total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{_clock(seconds, 1)}"
