"""A graph as pages show it: every box can be chosen, and takes on another colour without being drawn anew.

Places and sizes come from names alone, never from what has become of a job: a picture of a run that goes on
stands still. Colours are classes, for the sheet of the page; there is no style, no script and no colour in
it. A box is a link, so it can be reached and opened with the keyboard and without any script.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rota.drawing.label import Edge
from rota.drawing.layout import Box, Direction, Layout, layout
from rota.drawing.marks import HEAD, curve, cut, extent, number, said
from rota.model.graph import Graph

MARGIN = 24.0
HEIGHT = 54.0
NARROWEST = 180.0
INSET = 12.0
LEAST = 3.0
"""Pixels of a share."""
ICONS = "i-state"
"""Symbols of the page, one for each state, so that none is told by its colour alone."""

Share = tuple[str, float]
"""A state, and how much of all is in it."""


@dataclass(frozen=True, slots=True)
class Card:
    """What is known of a box. What lies beyond its name may change while the picture stays."""

    name: str
    state: str = ""
    remark: str = ""
    hint: str = ""
    """Besides name and remark, for whoever points at it."""
    href: str = ""
    many: int = 1
    shares: Sequence[Share] = ()
    """A bar along its foot: how far it is, or how many are in which state."""


def place(graph: Graph, names: Mapping[str, str], direction: Direction = "right") -> Layout:
    """Where each box goes; `names` are those that it shows."""
    sizes = {key: (_wide(names[key]), HEIGHT) for key in graph.order}
    return layout(graph, sizes, direction)


def board(
    made: Layout,
    cards: Mapping[str, Card],
    *,
    between: str,
    title: str = "Graph",
    chosen: str = "",
) -> str:
    """One SVG. `between`: what `edges` has made of the same layout."""
    width, height = made.width + 2 * MARGIN, made.height + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="board" role="group" '
        f'aria-label="{said(title)}" width="{number(width)}" height="{number(height)}" '
        f'viewBox="0 0 {number(width)} {number(height)}">',
        f'<g class="world">{between}',
    ]
    for key, box in made.boxes.items():
        lines += _box(key, cards[key], box, chosen=key == chosen)
    lines.append("</g></svg>")
    return "\n".join(lines)


def edges(made: Layout, after: Collection[Edge] = (), direction: Direction = "right") -> str:
    """The lines between the boxes, which stay as they are. Those in `after` carry order but no data, they
    are dashed."""
    loose = frozenset(after)
    down = direction == "down"
    lines = [f'<g class="edges" transform="translate({number(MARGIN)} {number(MARGIN)})">']
    for route in made.routes:
        dashes = ' class="after"' if (route.parent, route.child) in loose else ""
        ends = f'data-from="{said(route.parent)}" data-to="{said(route.child)}"'
        lines.append(f'<path d="{curve(route.points, down=down)}" {ends}{dashes}/>')
    heads = {route.child: made.boxes[route.child] for route in made.routes}
    lines += [_head(box, down=down) for box in heads.values()]
    return "\n".join([*lines, "</g>"])


def _head(box: Box, *, down: bool) -> str:
    if down:
        x, y, way = box.x + box.width / 2, box.y, f"l-4 {number(-HEAD)}h8z"
    else:
        x, y, way = box.x, box.y + box.height / 2, f"l{number(-HEAD)} -4v8z"
    return f'<path class="tip" d="M{number(x)} {number(y)}{way}"/>'


def _box(key: str, card: Card, box: Box, *, chosen: bool) -> Iterator[str]:
    state = card.state or "plain"
    shape = f'width="{number(box.width)}" height="{number(box.height)}" rx="9"'
    at = f"translate({number(box.x + MARGIN)} {number(box.y + MARGIN)})"
    here = ' aria-current="true"' if chosen else ""
    most = int((box.width - 44) / 5.9)  # letters of the second line
    many = f' data-many="{card.many}"' if card.many > 1 else ""
    href = f' href="{said(card.href)}"' if card.href else ""
    yield (
        f'<a class="job {state}" data-key="{said(key)}"{many}{here}{href} transform="{at}">'
        f"<title>{said(tip(card))}</title>"
    )
    if card.many > 1:
        yield f'<rect class="under" x="5" y="5" {shape}/>'
    yield f'<rect class="box" {shape}/>'
    yield (
        f'<use class="sign" href="#{ICONS}-{state}" x="12" y="{number(box.height / 2 - 8)}" '
        f'width="16" height="16"/>'
        f'<text class="name" x="36" y="22">{said(cut(card.name))}</text>'
        f'<text class="remark" x="36" y="39" data-most="{most}">{said(cut(card.remark, most))}</text>'
    )
    yield f'<g class="shares">{"".join(bars(card.shares, box.width))}</g></a>'


def tip(card: Card) -> str:
    """What is told to whoever points at a box, and read out."""
    return "\n".join(part for part in (card.name, card.remark, card.hint) if part)


def bars(shares: Sequence[Share], width: float) -> Iterator[str]:
    """Side by side, along the foot of a box so wide; none is too small to be seen."""
    at, whole = INSET, width - 2 * INSET
    for state, share in shares:
        long = max(whole * min(share, 1.0), LEAST) if share > 0 else 0.0
        long = min(long, INSET + whole - at)
        if long > 0:
            yield (
                f'<rect class="share {state or "plain"}" x="{number(at)}" y="{number(HEIGHT - 8)}" '
                f'width="{number(long)}" height="3"/>'
            )
        at += long


def _wide(name: str) -> float:
    return max(extent(cut(name), 13.5) + 50.0, NARROWEST)
