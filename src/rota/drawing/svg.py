"""Graph as one self-contained SVG, without scripts, fonts or links.

Light mode uses presentation attributes only, so the picture is complete even if a content security policy
forbids inline styles. Dark mode is one `<style>` element. A page with such a policy passes a `nonce`, or
omits the element (`style=False`) and adds `DARK_STYLE` to its own style sheet. The SVG has no ids and every
rule begins with `.rota-graph`, so a page can contain any number of pictures.

Names, details and errors are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from rota.drawing.label import EMPTY_LABEL, STATES, Edge, NodeLabel
from rota.drawing.layout import Direction, EdgeRoute, NodeBox, layout
from rota.drawing.palette import DARK, LIGHT
from rota.drawing.svg_text import (
    arrow_head_path,
    edge_path,
    escape_text,
    numbers,
    open_svg,
    text_width,
    translate,
    truncate,
)
from rota.model.graph import Graph
from rota.model.text import counted

MARGIN = 20.0
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


def svg(
    graph: Graph,
    labels: Mapping[str, NodeLabel] | None = None,
    *,
    after: Collection[Edge] = (),
    direction: Direction = "right",
    title: str = "",
    style: bool = True,
    nonce: str = "",
) -> str:
    """Draw `graph`. Edges in `after` carry order but no data, and are dashed."""
    labels = {name: (labels or {}).get(name, EMPTY_LABEL) for name in graph.order}
    has_remarks = any(label.remark for label in labels.values())
    sizes = {
        name: (_box_width(name, label), 48.0 if has_remarks else 36.0)
        for name, label in labels.items()
    }
    graph_layout = layout(graph, sizes, direction)
    order_only = frozenset(after)
    down = direction == "down"
    width, height = graph_layout.width + 2 * MARGIN, graph_layout.height + 2 * MARGIN
    font = f' font-family="{escape_text(FONT)}"'
    lines = [open_svg("rota-graph", _summary(labels, title), width, height, more=font)]
    if style:
        nonce_attribute = f' nonce="{escape_text(nonce)}"' if nonce else ""
        lines.append(f"<style{nonce_attribute}>{DARK_STYLE}</style>")
    lines.append(f'<rect class="ground" width="100%" height="100%" fill="{LIGHT.background}"/>')
    lines.append(f"<g {translate(MARGIN, MARGIN)}>")
    lines.append(f'<g class="edges" fill="none" stroke="{LIGHT.edge}" stroke-width="1.5">')
    lines += [
        _edge(route, labels, (route.predecessor, route.successor) in order_only, down=down)
        for route in graph_layout.routes
    ]
    lines.append(f'</g><g class="heads" fill="{LIGHT.edge}">')
    lines += [
        f'<path d="{arrow_head_path(graph_layout.boxes[name], down=down)}"/>'
        for name in graph.order
        if graph.predecessors[name]
    ]
    lines.append("</g>")
    for name in graph.order:
        lines += _box(name, labels[name], graph_layout.boxes[name])
    lines.append("</g></svg>")
    return "\n".join(lines) + "\n"


def _edge(
    route: EdgeRoute, labels: Mapping[str, NodeLabel], is_order_only: bool, *, down: bool
) -> str:
    predecessor, successor = (
        labels[name].name or name for name in (route.predecessor, route.successor)
    )
    dashes = ' class="after" stroke-dasharray="5 4"' if is_order_only else ""
    path = edge_path(route.points, down=down)
    text = (
        f"{successor} comes after {predecessor}"
        if is_order_only
        else f"{successor} receives the result of {predecessor}"
    )
    return f'<path d="{path}"{dashes}><title>{escape_text(text)}</title></path>'


def _box(name: str, label: NodeLabel, box: NodeBox) -> Iterator[str]:
    state = label.known_state
    colors = LIGHT.states[state]
    shape = f'{numbers(width=box.width, height=box.height)} rx="9"'
    dashes = ' stroke-dasharray="4 3"' if state == "skipped" else ""
    yield (
        f'<g class="job {state or "plain"}" {translate(box.x, box.y)} '
        f'fill="{colors.fill}" stroke="{colors.stroke}" stroke-width="1.5">'
        f"<title>{escape_text(_tooltip(name, label))}</title>"
    )
    if label.job_count > 1:
        yield f'<rect class="under" x="5" y="5" {shape}/>'
    yield f'<rect class="card" {shape}{dashes}/>'
    left, middle = 14.0, box.height / 2
    if state:
        yield (
            f'<circle class="dot" {numbers(cx=17, cy=middle, r=4)} '
            f'fill="{colors.stroke}" stroke="none"/>'
        )
        left = 30.0
    shown = escape_text(truncate(label.name or name))
    baseline = middle - 3.5 if label.remark else middle + 4.5
    yield (
        f'<text class="name" {numbers(x=left, y=baseline)} font-size="13" font-weight="600" '
        f'fill="{LIGHT.text}" stroke="none">{shown}</text>'
    )
    if label.remark:
        yield (
            f'<text class="remark" {numbers(x=left, y=middle + 13)} font-size="11" '
            f'fill="{colors.text}" stroke="none">{escape_text(truncate(label.remark))}</text>'
        )
    yield "</g>"


def _dark_style() -> str:
    states = "".join(
        f"\n.rota-graph .{state or 'plain'}{{fill:{colors.fill};stroke:{colors.stroke}}}"
        f".rota-graph .{state or 'plain'} .dot{{fill:{colors.stroke}}}"
        f".rota-graph .{state or 'plain'} .remark{{fill:{colors.text}}}"
        for state, colors in DARK.states.items()
    )
    return (
        f"\n@media (prefers-color-scheme: dark){{"
        f"\n.rota-graph .ground{{fill:{DARK.background}}}"
        f".rota-graph .edges{{stroke:{DARK.edge}}}"
        f".rota-graph .heads{{fill:{DARK.edge}}}"
        f".rota-graph .name{{fill:{DARK.text}}}"
        f"{states}\n}}\n"
    )


DARK_STYLE = _dark_style()
"""Rules of dark mode, for the style sheet of a page whose policy forbids inline styles."""


def _summary(labels: Mapping[str, NodeLabel], title: str) -> str:
    states: Counter[str] = Counter()
    for label in labels.values():
        states[label.known_state] += label.job_count
    jobs = states.total()
    text = f"{title or 'Graph'}: {counted(jobs, 'job')}"
    by_state = [f"{states[state]:,} {state}" for state in STATES if states[state]]
    return f"{text}, {', '.join(by_state)}" if by_state else text


def _tooltip(name: str, label: NodeLabel) -> str:
    return "\n".join(part for part in (label.name or name, label.remark, label.error) if part)


def _box_width(name: str, label: NodeLabel) -> float:
    text = max(
        text_width(truncate(label.name or name), 13.5), text_width(truncate(label.remark), 11)
    )
    return max(text + (44.0 if label.known_state else 28.0), 64.0)
