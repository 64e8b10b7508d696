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

from rota.drawing.layers import LayerAssignment, assign_layers
from rota.drawing.settle import BOX_GAP, WAYPOINT_HALF_SIZE, find_centers, round_count
from rota.model.graph import Graph

Direction = Literal["right", "down"]
Point = tuple[float, float]

COMPONENT_GAP = 40.0
"""Between separate parts of a graph."""
RANK_GAP = 48.0
MAX_RANK_GAP = 160.0


@dataclass(frozen=True, slots=True)
class NodeBox:
    """Where a job is drawn; `x` and `y` are its upper left corner."""

    rank: int
    index: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class EdgeRoute:
    """An edge from side to side. Between two points of one height (of one column, if the flow goes
    down) it is straight; elsewhere it turns."""

    predecessor: str
    successor: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    boxes: Mapping[str, NodeBox]
    routes: tuple[EdgeRoute, ...]
    width: float
    height: float


def layout(
    graph: Graph, sizes: Mapping[str, tuple[float, float]], direction: Direction = "right"
) -> GraphLayout:
    """Place every name of `graph`; `sizes` gives the width and height each box asks for."""
    if direction == "down":  # thought out to the right, then turned
        sizes = {name: (height, width) for name, (width, height) in sizes.items()}
    components = assign_layers(graph)
    rounds = round_count(components)
    all_centers: list[list[float]] = []
    next_top = 0.0
    for component in components:
        half_sizes = [sizes[name][1] / 2 for name in component.names]
        half_sizes += [WAYPOINT_HALF_SIZE - BOX_GAP / 2] * (
            len(component.above) - len(component.names)
        )
        found = find_centers(component, half_sizes, rounds)
        top = min(centers - half for centers, half in zip(found, half_sizes, strict=True))
        all_centers.append([centers - top + next_top for centers in found])
        bottoms = (
            centers + half for centers, half in zip(all_centers[-1], half_sizes, strict=True)
        )
        next_top = max(bottoms) + COMPONENT_GAP
    ranks = max((len(component.rows) for component in components), default=0)
    depths = [0.0] * ranks
    for component in components:
        for item, name in enumerate(component.names):
            depths[component.ranks[item]] = max(depths[component.ranks[item]], sizes[name][0])
    starts = _rank_starts(components, all_centers, depths)

    boxes: dict[str, NodeBox] = {}
    routes: list[EdgeRoute] = []
    next_index = [0] * ranks  # a place counts all parts that lie before it
    for component, centers in zip(components, all_centers, strict=True):
        for rank, row in enumerate(component.rows):
            for item in row:
                if not component.is_waypoint(item):
                    name = component.names[item]
                    node_height = sizes[name][1]
                    y = centers[item] - node_height / 2
                    boxes[name] = NodeBox(
                        rank, next_index[rank], starts[rank], y, depths[rank], node_height
                    )
                    next_index[rank] += 1
        item_of = {name: item for item, name in enumerate(component.names)}
        for (predecessor, successor), waypoints in component.waypoints.items():
            source, target = item_of[predecessor], item_of[successor]
            source_rank, target_rank = component.ranks[source], component.ranks[target]
            points = [(starts[source_rank] + depths[source_rank], centers[source])]
            for waypoint in waypoints:
                rank = component.ranks[waypoint]
                points.append((starts[rank], centers[waypoint]))
                points.append((starts[rank] + depths[rank], centers[waypoint]))
            points.append((starts[target_rank], centers[target]))
            routes.append(EdgeRoute(predecessor, successor, tuple(points)))
    boxes = {name: boxes[name] for name in graph.order}
    width = starts[-1] + depths[-1] if ranks else 0.0
    placed = GraphLayout(boxes, tuple(routes), width, max(next_top - COMPONENT_GAP, 0.0))
    return _transpose(placed) if direction == "down" else placed


def _rank_starts(
    components: Sequence[LayerAssignment],
    all_centers: Sequence[Sequence[float]],
    depths: Sequence[float],
) -> list[float]:
    """Where each rank begins. A gap is wider where an edge in it has far to go."""
    gaps = [RANK_GAP] * len(depths)
    for component, centers in zip(components, all_centers, strict=True):
        for upper, neighbours in enumerate(component.below):
            distance = max(
                (abs(centers[upper] - centers[lower]) for lower in neighbours), default=0.0
            )
            rank = component.ranks[upper]
            gaps[rank] = max(gaps[rank], min(MAX_RANK_GAP, distance * 0.4))
    starts, position = [], 0.0
    for depth, gap in zip(depths, gaps, strict=True):
        starts.append(position)
        position += depth + gap
    return starts


def _transpose(placed: GraphLayout) -> GraphLayout:
    boxes = {
        name: NodeBox(box.rank, box.index, box.y, box.x, box.height, box.width)
        for name, box in placed.boxes.items()
    }
    routes = tuple(
        EdgeRoute(each.predecessor, each.successor, tuple((x, y) for y, x in each.points))
        for each in placed.routes
    )
    return GraphLayout(boxes, routes, placed.height, placed.width)
