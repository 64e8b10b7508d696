"""A graph as one SVG picture that needs nothing else: no script, no font, no link.

By day it is drawn with presentation attributes alone, so it is whole even where a content security
policy forbids inline styles. The night comes from one `<style>` element: a page with such a policy gives
it a `nonce`, or leaves it out (`style=False`) and puts `STYLE` into its own sheet. No id is used and
every rule begins with `.rota-graph`: any number of pictures fit on one page.

Names, details and errors are text, whatever is in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from rota.drawing.label import BLANK, STATES, Edge, Label
from rota.drawing.layout import Box, Direction, Route, layout
from rota.drawing.marks import HEAD, curve, cut, extent, number, said
from rota.drawing.palette import DAY, NIGHT
from rota.model.graph import Graph

MARGIN = 20.0
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


def svg(
    graph: Graph,
    labels: Mapping[str, Label] | None = None,
    *,
    after: Collection[Edge] = (),
    direction: Direction = "right",
    title: str = "",
    style: bool = True,
    nonce: str = "",
) -> str:
    """Draw `graph`. Edges in `after` carry order but no data, and are dashed."""
    labels = {name: (labels or {}).get(name, BLANK) for name in graph.order}
    tall = any(label.remark for label in labels.values())
    sizes = {name: (_wide(name, label), 48.0 if tall else 36.0) for name, label in labels.items()}
    made = layout(graph, sizes, direction)
    loose = frozenset(after)
    width, height = made.width + 2 * MARGIN, made.height + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rota-graph" role="img" '
        f'aria-label="{said(_summary(labels, title))}" '
        f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}" '
        f'font-family="{said(FONT)}">'
    ]
    if style:
        granted = f' nonce="{said(nonce)}"' if nonce else ""
        lines.append(f"<style{granted}>{STYLE}</style>")
    lines.append(f'<rect class="ground" width="100%" height="100%" fill="{DAY.ground}"/>')
    lines.append(f'<g transform="translate({number(MARGIN)} {number(MARGIN)})">')
    lines.append(f'<g class="edges" fill="none" stroke="{DAY.edge}" stroke-width="1.5">')
    lines += [
        _edge(route, labels, (route.parent, route.child) in loose, direction)
        for route in made.routes
    ]
    lines.append(f'</g><g class="heads" fill="{DAY.edge}">')
    lines += [_head(made.boxes[name], direction) for name in graph.order if graph.parents[name]]
    lines.append("</g>")
    for name in graph.order:
        lines += _box(name, labels[name], made.boxes[name])
    lines.append("</g></svg>")
    return "\n".join(lines) + "\n"


def _edge(route: Route, labels: Mapping[str, Label], loose: bool, direction: Direction) -> str:
    parent, child = (labels[name].name or name for name in (route.parent, route.child))
    dashes = ' class="after" stroke-dasharray="5 4"' if loose else ""
    path = curve(route.points, down=direction == "down")
    words = f"{child} comes after {parent}" if loose else f"{child} takes what {parent} gives"
    return f'<path d="{path}"{dashes}><title>{said(words)}</title></path>'


def _head(box: Box, direction: Direction) -> str:
    """One for all edges that end here: they end in one point."""
    if direction == "down":
        x, y = box.x + box.width / 2, box.y
        return f'<path d="M{number(x)} {number(y)}l-4 {number(-HEAD)}h8z"/>'
    x, y = box.x, box.y + box.height / 2
    return f'<path d="M{number(x)} {number(y)}l{number(-HEAD)} -4v8z"/>'


def _box(name: str, label: Label, box: Box) -> Iterator[str]:
    state = label.known
    ink = DAY.states[state]
    shape = f'width="{number(box.width)}" height="{number(box.height)}" rx="9"'
    dashes = ' stroke-dasharray="4 3"' if state == "skipped" else ""
    yield (
        f'<g class="job {state or "plain"}" transform="translate({number(box.x)} {number(box.y)})" '
        f'fill="{ink.fill}" stroke="{ink.line}" stroke-width="1.5">'
        f"<title>{said(_tooltip(name, label))}</title>"
    )
    if label.many > 1:
        yield f'<rect class="under" x="5" y="5" {shape}/>'
    yield f'<rect class="card" {shape}{dashes}/>'
    left, middle = 14.0, box.height / 2
    if state:
        yield f'<circle class="dot" cx="17" cy="{number(middle)}" r="4" fill="{ink.line}" stroke="none"/>'
        left = 30.0
    shown = said(cut(label.name or name))
    baseline = middle - 3.5 if label.remark else middle + 4.5
    yield (
        f'<text class="name" x="{number(left)}" y="{number(baseline)}" font-size="13" font-weight="600" '
        f'fill="{DAY.name}" stroke="none">{shown}</text>'
    )
    if label.remark:
        yield (
            f'<text class="remark" x="{number(left)}" y="{number(middle + 13)}" font-size="11" '
            f'fill="{ink.word}" stroke="none">{said(cut(label.remark))}</text>'
        )
    yield "</g>"


def _style() -> str:
    states = "".join(
        f"\n.rota-graph .{state or 'plain'}{{fill:{ink.fill};stroke:{ink.line}}}"
        f".rota-graph .{state or 'plain'} .dot{{fill:{ink.line}}}"
        f".rota-graph .{state or 'plain'} .remark{{fill:{ink.word}}}"
        for state, ink in NIGHT.states.items()
    )
    return (
        f"\n@media (prefers-color-scheme: dark){{"
        f"\n.rota-graph .ground{{fill:{NIGHT.ground}}}"
        f".rota-graph .edges{{stroke:{NIGHT.edge}}}"
        f".rota-graph .heads{{fill:{NIGHT.edge}}}"
        f".rota-graph .name{{fill:{NIGHT.name}}}"
        f"{states}\n}}\n"
    )


STYLE = _style()
"""The night. For the style sheet of a page whose policy forbids inline styles."""


def _summary(labels: Mapping[str, Label], title: str) -> str:
    states: Counter[str] = Counter()
    for label in labels.values():
        states[label.known] += label.many
    jobs = states.total()
    words = f"{title or 'Graph'}: {jobs:,} {'job' if jobs == 1 else 'jobs'}"
    counted = [f"{states[state]:,} {state}" for state in STATES if states[state]]
    return f"{words}, {', '.join(counted)}" if counted else words


def _tooltip(name: str, label: Label) -> str:
    return "\n".join(part for part in (label.name or name, label.remark, label.error) if part)


def _wide(name: str, label: Label) -> float:
    text = max(extent(cut(label.name or name), 13.5), extent(cut(label.remark), 11))
    return max(text + (44.0 if label.known else 28.0), 64.0)
