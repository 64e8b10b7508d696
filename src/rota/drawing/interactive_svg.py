"""Graph for web pages: every box can be selected, and changes its colour without a new drawing.

Positions and sizes depend only on names, not on states, so the picture of a running run does not move.
Colours are CSS classes, defined by the style sheet of the page; the SVG has no styles, scripts or colours.
Each box is a link, so it can be reached and opened with the keyboard and without scripts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rota.drawing.label import Edge
from rota.drawing.layout import Direction, GraphLayout, NodeBox, layout
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

MARGIN = 24.0
BOX_HEIGHT = 54.0
MIN_BOX_WIDTH = 180.0
INSET = 12.0
MIN_SHARE_WIDTH = 3.0
ICON_PREFIX = "i-state"
"""Prefix of the page's SVG symbols: each state has its own, so that colour is not the only difference."""

Share = tuple[str, float]
"""A state and its share of the total."""


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """Content of a box. Everything but the name may change without a new layout."""

    name: str
    state: str = ""
    remark: str = ""
    hint: str = ""
    """Tooltip text in addition to name and remark."""
    href: str = ""
    job_count: int = 1
    shares: Sequence[Share] = ()
    """Segments of the bar at the bottom: the progress, or the share of each state."""


def layout_boxes(
    graph: Graph, names: Mapping[str, str], direction: Direction = "right"
) -> GraphLayout:
    """Lay out the boxes; `names` are the texts they show."""
    sizes = {key: (_box_width(names[key]), BOX_HEIGHT) for key in graph.order}
    return layout(graph, sizes, direction)


def interactive_svg(
    graph_layout: GraphLayout,
    cards: Mapping[str, NodeDetails],
    *,
    edges_svg: str,
    title: str = "Graph",
    selected: str = "",
) -> str:
    """Draw the graph as one SVG; `edges_svg` is the result of `draw_edges` for the same layout."""
    width, height = graph_layout.width + 2 * MARGIN, graph_layout.height + 2 * MARGIN
    lines = [
        open_svg("board", title, width, height, role="group"),
        f'<g class="world">{edges_svg}',
    ]
    for key, box in graph_layout.boxes.items():
        lines += _box(key, cards[key], box, selected=key == selected)
    lines.append("</g></svg>")
    return "\n".join(lines)


def draw_edges(
    graph_layout: GraphLayout, after: Collection[Edge] = (), direction: Direction = "right"
) -> str:
    """Draw the edges, which never change. Those in `after` carry order but no data, and are dashed."""
    order_only = frozenset(after)
    down = direction == "down"
    lines = [f'<g class="edges" {translate(MARGIN, MARGIN)}>']
    for route in graph_layout.routes:
        dashes = ' class="after"' if (route.predecessor, route.successor) in order_only else ""
        ends = (
            f'data-from="{escape_text(route.predecessor)}" data-to="{escape_text(route.successor)}"'
        )
        lines.append(f'<path d="{edge_path(route.points, down=down)}" {ends}{dashes}/>')
    targets = {
        route.successor: graph_layout.boxes[route.successor] for route in graph_layout.routes
    }
    lines += [
        f'<path class="tip" d="{arrow_head_path(box, down=down)}"/>' for box in targets.values()
    ]
    return "\n".join([*lines, "</g>"])


def _box(key: str, card: NodeDetails, box: NodeBox, *, selected: bool) -> Iterator[str]:
    state = card.state or "plain"
    shape = f'{numbers(width=box.width, height=box.height)} rx="9"'
    current = ' aria-current="true"' if selected else ""
    max_chars = int((box.width - 44) / 5.9)  # length of the second line
    count = f' data-many="{card.job_count}"' if card.job_count > 1 else ""
    href = f' href="{escape_text(card.href)}"' if card.href else ""
    yield (
        f'<a class="job {state}" data-key="{escape_text(key)}"{count}{current}{href} '
        f"{translate(box.x + MARGIN, box.y + MARGIN)}>"
        f"<title>{escape_text(tooltip(card))}</title>"
    )
    if card.job_count > 1:
        yield f'<rect class="under" x="5" y="5" {shape}/>'
    yield f'<rect class="box" {shape}/>'
    yield (
        f'<use class="sign" href="#{ICON_PREFIX}-{state}" '
        f"{numbers(x=12, y=box.height / 2 - 8, width=16, height=16)}/>"
        f'<text class="name" x="36" y="22">{escape_text(truncate(card.name))}</text>'
        f'<text class="remark" x="36" y="39" '
        f'data-most="{max_chars}">{escape_text(truncate(card.remark, max_chars))}</text>'
    )
    yield f'<g class="shares">{"".join(share_bars(card.shares, box.width))}</g></a>'


def tooltip(card: NodeDetails) -> str:
    """Return the tooltip of a box, also read by screen readers."""
    return "\n".join(part for part in (card.name, card.remark, card.hint) if part)


def share_bars(shares: Sequence[Share], width: float) -> Iterator[str]:
    """Yield the segments of the bar at the bottom of a box, each wide enough to be visible."""
    x, total = INSET, width - 2 * INSET
    for state, share in shares:
        length = max(total * min(share, 1.0), MIN_SHARE_WIDTH) if share > 0 else 0.0
        length = min(length, INSET + total - x)
        if length > 0:
            place = numbers(x=x, y=BOX_HEIGHT - 8, width=length, height=3)
            yield f'<rect class="share {state or "plain"}" {place}/>'
        x += length


def _box_width(name: str) -> float:
    return max(text_width(truncate(name), 13.5) + 50.0, MIN_BOX_WIDTH)
