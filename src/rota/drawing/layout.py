"""Layout: where each box of a drawing goes, and which points each edge passes.

Boxes never overlap; edges always lead on, in the direction of the flow, and turn only in the gaps between
ranks, so that none runs behind a box (but for the longest ones of a graph with tens of thousands of
points to pass). Boxes of one rank reach equally far along the flow. Separate parts of the graph lie
beside each other. The same graph and sizes always give the same layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rota.drawing.layers import Layers, layers
from rota.drawing.settle import BESIDE, KNOT, middles, rounds
from rota.model.graph import Graph

Direction = Literal["right", "down"]
Point = tuple[float, float]

APART = 40.0
"""Between separate parts of a graph."""
GAP = 48.0
WIDEST_GAP = 160.0


@dataclass(frozen=True, slots=True)
class Box:
    """Where a job is drawn; `x` and `y` are its upper left corner."""

    rank: int
    place: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """An edge from side to side. Between two points of one height (of one column, if the flow goes
    down) it is straight; elsewhere it turns."""

    parent: str
    child: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: Mapping[str, Box]
    routes: tuple[Route, ...]
    width: float
    height: float


def layout(
    graph: Graph, sizes: Mapping[str, tuple[float, float]], direction: Direction = "right"
) -> Layout:
    """Place every name of `graph`; `sizes` gives the width and height each box asks for."""
    if direction == "down":  # thought out to the right, then turned
        sizes = {name: (height, width) for name, (width, height) in sizes.items()}
    parts = layers(graph)
    turns = rounds(parts)
    across: list[list[float]] = []
    floor = 0.0
    for part in parts:
        halves = [sizes[name][1] / 2 for name in part.names]
        halves += [KNOT - BESIDE / 2] * (len(part.above) - len(part.names))
        found = middles(part, halves, turns)
        top = min(middle - half for middle, half in zip(found, halves, strict=True))
        across.append([middle - top + floor for middle in found])
        reach = (middle + half for middle, half in zip(across[-1], halves, strict=True))
        floor = max(reach) + APART
    ranks = max((len(part.rows) for part in parts), default=0)
    depths = [0.0] * ranks
    for part in parts:
        for item, name in enumerate(part.names):
            depths[part.rank[item]] = max(depths[part.rank[item]], sizes[name][0])
    starts = _starts(parts, across, depths)

    boxes: dict[str, Box] = {}
    routes: list[Route] = []
    ahead = [0] * ranks  # a place counts all parts that lie before it
    for part, middle in zip(parts, across, strict=True):
        for rank, row in enumerate(part.rows):
            for item in row:
                if not part.is_knot(item):
                    name = part.names[item]
                    tall = sizes[name][1]
                    y = middle[item] - tall / 2
                    boxes[name] = Box(rank, ahead[rank], starts[rank], y, depths[rank], tall)
                    ahead[rank] += 1
        number = {name: item for item, name in enumerate(part.names)}
        for (parent, child), knots in part.knots.items():
            one, other = number[parent], number[child]
            first, last = part.rank[one], part.rank[other]
            points = [(starts[first] + depths[first], middle[one])]
            for knot in knots:
                rank = part.rank[knot]
                points.append((starts[rank], middle[knot]))
                points.append((starts[rank] + depths[rank], middle[knot]))
            points.append((starts[last], middle[other]))
            routes.append(Route(parent, child, tuple(points)))
    boxes = {name: boxes[name] for name in graph.order}
    width = starts[-1] + depths[-1] if ranks else 0.0
    made = Layout(boxes, tuple(routes), width, max(floor - APART, 0.0))
    return _turned(made) if direction == "down" else made


def _starts(
    parts: Sequence[Layers], across: Sequence[Sequence[float]], depths: Sequence[float]
) -> list[float]:
    """Where each rank begins. A gap is wider where an edge in it has far to go."""
    gaps = [GAP] * len(depths)
    for part, middle in zip(parts, across, strict=True):
        for upper, joined in enumerate(part.below):
            far = max((abs(middle[upper] - middle[lower]) for lower in joined), default=0.0)
            rank = part.rank[upper]
            gaps[rank] = max(gaps[rank], min(WIDEST_GAP, far * 0.4))
    starts, at = [], 0.0
    for depth, gap in zip(depths, gaps, strict=True):
        starts.append(at)
        at += depth + gap
    return starts


def _turned(made: Layout) -> Layout:
    boxes = {
        name: Box(box.rank, box.place, box.y, box.x, box.height, box.width)
        for name, box in made.boxes.items()
    }
    routes = tuple(
        Route(each.parent, each.child, tuple((x, y) for y, x in each.points))
        for each in made.routes
    )
    return Layout(boxes, routes, made.height, made.width)
