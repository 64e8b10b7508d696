"""Layout of a graph: the position of each box and the points that each edge passes.

Boxes never overlap. Edges always point in the direction of the flow and turn only in the gaps between
ranks, so that none runs behind a box (except the longest edges of graphs with tens of thousands of points).
Boxes of one rank have the same extent along the flow. Separate parts of the graph lie beside each other.
The same graph and sizes always give the same layout.

1. Ranks: each node is placed after all its predecessors, and each rank is ordered to have few
   crossings. An edge that skips ranks passes a *waypoint* on each of them, so that the order leaves
   room for it. All long edges of one node share their waypoints and leave as one line that branches.
2. Coordinates: every edge pulls its two ends together, the pieces of a long edge most; order and
   minimum distances within a rank are kept. At the end, chains that can be straight without moving
   other items are made straight.

Work is bounded: the longest edges go without waypoints once there would be too many, and sweeps end when
they stop helping or reach a limit. The limit counts operations, not time, so the result is always the same.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Literal

from rota.drawing.label import Edge
from rota.model.graph import Graph

Direction = Literal["right", "down"]
Point = tuple[float, float]

COMPONENT_GAP = 40.0
"""Distance between separate parts of a graph."""
RANK_GAP = 48.0
MAX_RANK_GAP = 160.0


@dataclass(frozen=True, slots=True)
class NodeBox:
    """Position of a job; `x` and `y` are its upper left corner."""

    rank: int
    index: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class EdgeRoute:
    """An edge from box to box.

    Between two points with the same y (with the same x if the flow goes down) it is straight; elsewhere it
    turns.
    """

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
    """Place every name of `graph`; `sizes` has the minimum width and height of each box."""
    if direction == "down":  # computed to the right, then transposed
        sizes = {name: (height, width) for name, (width, height) in sizes.items()}
    components = assign_layers(graph)
    all_centers, height = _stack(components, sizes)
    ranks = max((len(component.rows) for component in components), default=0)
    depths = _rank_depths(components, sizes, ranks)
    starts = _rank_starts(components, all_centers, depths)

    boxes: dict[str, NodeBox] = {}
    routes: list[EdgeRoute] = []
    next_index = [0] * ranks  # indexes continue over all components
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
        routes += _routes(component, centers, starts, depths)
    boxes = {name: boxes[name] for name in graph.order}
    width = starts[-1] + depths[-1] if ranks else 0.0
    placed = GraphLayout(boxes, tuple(routes), width, height)
    return _transpose(placed) if direction == "down" else placed


def _rank_depths(
    components: Sequence[LayerAssignment], sizes: Mapping[str, tuple[float, float]], ranks: int
) -> list[float]:
    """Return the width of each rank: that of its widest box."""
    depths = [0.0] * ranks
    for component in components:
        for item, name in enumerate(component.names):
            depths[component.ranks[item]] = max(depths[component.ranks[item]], sizes[name][0])
    return depths


def _stack(
    components: Sequence[LayerAssignment], sizes: Mapping[str, tuple[float, float]]
) -> tuple[list[list[float]], float]:
    """Place the components below each other. Return the centers of each one's items, and the height."""
    rounds = round_count(components)
    all_centers: list[list[float]] = []
    next_top = 0.0
    for component in components:
        half_sizes = [sizes[name][1] / 2 for name in component.names]
        waypoints = len(component.above) - len(component.names)
        half_sizes += [WAYPOINT_HALF_SIZE - BOX_GAP / 2] * waypoints
        found = find_centers(component, half_sizes, rounds)
        top = min(center - half for center, half in zip(found, half_sizes, strict=True))
        centers = [center - top + next_top for center in found]
        all_centers.append(centers)
        bottoms = (center + half for center, half in zip(centers, half_sizes, strict=True))
        next_top = max(bottoms) + COMPONENT_GAP
    return all_centers, max(next_top - COMPONENT_GAP, 0.0)


def _routes(
    component: LayerAssignment,
    centers: Sequence[float],
    starts: Sequence[float],
    depths: Sequence[float],
) -> Iterator[EdgeRoute]:
    """Yield the edges of a component, each from box to box along its waypoints."""
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
        yield EdgeRoute(predecessor, successor, tuple(points))


def _rank_starts(
    components: Sequence[LayerAssignment],
    all_centers: Sequence[Sequence[float]],
    depths: Sequence[float],
) -> list[float]:
    """Return the position of each rank. A gap is wider if an edge in it is steep."""
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


MAX_WAYPOINTS = 8_000
MAX_WAYPOINT_PASSES = 80_000
"""Limit of waypoints on all edges together; a shared waypoint counts once for each edge."""
MAX_SWEEPS = 24
MAX_SWEEP_EDGES = 200_000
"""Limit of edges examined while crossings are reduced."""


@dataclass(slots=True)
class LayerAssignment:
    """Layers of a connected component. Items below `len(names)` are names, those above are waypoints."""

    names: list[str]
    ranks: list[int]
    rows: list[list[int]] = field(default_factory=list)
    above: list[list[int]] = field(default_factory=list)
    """Items of the previous rank that each item is connected to."""
    below: list[list[int]] = field(default_factory=list)
    waypoints: dict[Edge, list[int]] = field(default_factory=dict)
    """Waypoints that each edge passes."""

    def is_waypoint(self, item: int) -> bool:
        return item >= len(self.names)


def assign_layers(graph: Graph) -> list[LayerAssignment]:
    """Return the layers of each connected component, in graph order."""
    ranks = _ranks(graph)
    found = [
        _build_layers(graph, component, ranks, len(graph.order)) for component in components(graph)
    ]
    size = sum(len(neighbours) + 1 for each in found for neighbours in each.below)
    sweeps = max(2, min(MAX_SWEEPS, MAX_SWEEP_EDGES // max(size, 1)))
    for each in found:
        _reduce_crossings(each, sweeps)
    return found


def _ranks(graph: Graph) -> dict[str, int]:
    """Return the rank of each node: its depth in the graph.

    A node with more successors than predecessors moves next to its successors, which shortens its edges.
    """
    ranks = dict(graph.depth)
    for name in reversed(graph.order):
        successors = graph.successors[name]
        if len(successors) > len(graph.predecessors[name]):
            ranks[name] = min(ranks[successor] for successor in successors) - 1
    return ranks


def components(graph: Graph) -> list[list[str]]:
    """Return the names of each connected component, in graph order."""
    component_of: dict[str, int] = {}
    for start in graph.order:
        if start in component_of:
            continue
        component_of[start] = number = len(component_of)
        stack = [start]
        while stack:
            name = stack.pop()
            for neighbour in (*graph.predecessors[name], *graph.successors[name]):
                if neighbour not in component_of:
                    component_of[neighbour] = number
                    stack.append(neighbour)
    found: dict[int, list[str]] = {}
    for name in graph.order:
        found.setdefault(component_of[name], []).append(name)
    return list(found.values())


def _build_layers(
    graph: Graph, names: list[str], ranks: dict[str, int], total_names: int
) -> LayerAssignment:
    first_rank = min(ranks[name] for name in names)
    layers = LayerAssignment(names, [ranks[name] - first_rank for name in names])
    layers.above = [[] for _ in names]
    layers.below = [[] for _ in names]
    chains: dict[int, list[int]] = {}
    waypoints_left, passes_left = (
        MAX_WAYPOINTS * len(names) // total_names,
        MAX_WAYPOINT_PASSES * len(names) // total_names,
    )
    for predecessor, successor in _edges_by_length(graph, names, layers):
        skipped = layers.ranks[successor] - layers.ranks[predecessor] - 1
        chain = chains.setdefault(predecessor, [])
        waypoints_left -= max(0, skipped - len(chain))
        passes_left -= skipped
        path: list[int] = []
        if skipped == 0 or min(waypoints_left, passes_left) >= 0:
            while len(chain) < skipped:
                chain.append(_add_waypoint(layers, chain[-1] if chain else predecessor))
            path = chain[:skipped]
            _connect(layers, path[-1] if path else predecessor, successor)
        layers.waypoints[names[predecessor], names[successor]] = path
    _initial_order(layers)
    return layers


def _edges_by_length(
    graph: Graph, names: list[str], layers: LayerAssignment
) -> list[tuple[int, int]]:
    """Return the distinct edges as pairs of items, those that skip the fewest ranks first."""
    item_of = {name: item for item, name in enumerate(names)}
    edges = {
        (item_of[predecessor], item_of[name]): None
        for name in names
        for predecessor in graph.predecessors[name]
    }
    return sorted(edges, key=lambda edge: layers.ranks[edge[1]] - layers.ranks[edge[0]])


def _add_waypoint(layers: LayerAssignment, previous: int) -> int:
    item = len(layers.above)
    layers.ranks.append(layers.ranks[previous] + 1)
    layers.above.append([])
    layers.below.append([])
    _connect(layers, previous, item)
    return item


def _connect(layers: LayerAssignment, upper: int, lower: int) -> None:
    layers.below[upper].append(lower)
    layers.above[lower].append(upper)


def _initial_order(layers: LayerAssignment) -> None:
    """Order each rank depth first: connected nodes begin side by side and a tree has no crossings."""
    layers.rows = [[] for _ in range(max(layers.ranks) + 1)]
    seen = [False] * len(layers.above)
    for start in range(len(layers.names)):
        if layers.above[start]:
            continue
        stack = [start]
        while stack:
            item = stack.pop()
            if not seen[item]:
                seen[item] = True
                layers.rows[layers.ranks[item]].append(item)
                stack.extend(reversed(layers.below[item]))


def _reduce_crossings(layers: LayerAssignment, sweeps: int) -> None:
    positions = [0] * len(layers.above)
    for row in layers.rows:
        _set_positions(row, positions)
    best_rows, min_crossings = [list(row) for row in layers.rows], count_crossings(layers)
    idle_sweeps = 0
    for sweep in range(sweeps):
        if min_crossings == 0 or idle_sweeps == 4:
            break
        down = sweep % 2 == 0
        neighbours = layers.above if down else layers.below
        for row in layers.rows[1:] if down else layers.rows[-2::-1]:
            centers = {
                item: _mean_position(neighbours[item], positions, positions[item]) for item in row
            }
            row.sort(key=centers.__getitem__)
            _set_positions(row, positions)
        _swap_neighbours(layers, positions)
        idle_sweeps += 1
        if (found := count_crossings(layers)) < min_crossings:
            best_rows, min_crossings, idle_sweeps = [list(row) for row in layers.rows], found, 0
    layers.rows = best_rows


def _set_positions(row: Sequence[int], positions: list[int]) -> None:
    for position, item in enumerate(row):
        positions[item] = position


def _mean_position(neighbours: Sequence[int], positions: list[int], default: int) -> float:
    return sum(positions[item] for item in neighbours) / len(neighbours) if neighbours else default


def _swap_neighbours(layers: LayerAssignment, positions: list[int]) -> None:
    """Swap adjacent items if that reduces the crossings."""
    for row in layers.rows:
        for left in range(len(row) - 1):
            first, second = row[left], row[left + 1]
            crossings_now = crossings_swapped = 0
            for neighbours in (layers.above, layers.below):
                one_neighbours, other_neighbours = neighbours[first], neighbours[second]
                if len(one_neighbours) * len(other_neighbours) > 64:  # not worth the cost
                    break
                for near in one_neighbours:
                    for far in other_neighbours:
                        crossings_now += positions[near] > positions[far]
                        crossings_swapped += positions[near] < positions[far]
            else:
                if crossings_swapped < crossings_now:
                    row[left], row[left + 1] = second, first
                    positions[first], positions[second] = left + 1, left


def count_crossings(layers: LayerAssignment) -> int:
    """Return the number of pairs of edges that cross between adjacent ranks."""
    return sum(_crossings_between(layers, upper, lower) for upper, lower in pairwise(layers.rows))


def _crossings_between(layers: LayerAssignment, upper: Sequence[int], lower: Sequence[int]) -> int:
    if len(upper) == 1 or len(lower) == 1:
        return 0
    positions = {item: position for position, item in enumerate(lower)}
    earlier_ends: list[int] = []
    found = 0
    for item in upper:
        ends = sorted(positions[each] for each in layers.below[item])
        found += sum(len(earlier_ends) - bisect_right(earlier_ends, end) for end in ends)
        for end in ends:
            insort(earlier_ends, end)
    return found


BOX_GAP = 16.0
"""Distance between boxes of one rank."""
WAYPOINT_HALF_SIZE = 5.0
"""Half of the room an edge takes between boxes."""
EDGE_FORCES = (1.0, 2.0, 8.0)
"""Force of an edge if none, one or both of its ends are waypoints: long edges should be straight, short
ones may bend.
"""

MAX_ROUNDS = 10
MAX_PLACEMENT_EDGES = 300_000
"""Limit of edges examined in all rounds. There are at least two rounds."""


def round_count(components: Sequence[LayerAssignment]) -> int:
    size = sum(len(neighbours) + 1 for component in components for neighbours in component.below)
    return max(2, min(MAX_ROUNDS, MAX_PLACEMENT_EDGES // (4 * max(size, 1))))


def find_centers(
    component: LayerAssignment, half_sizes: Sequence[float], rounds: int
) -> list[float]:
    """Return the position of each item across the flow, as close to its neighbours as its rank allows."""
    centers = [0.0] * len(component.above)
    offsets: list[list[float]] = []
    for row in component.rows:
        offset = [0.0]
        for one, other in pairwise(row):
            offset.append(offset[-1] + half_sizes[one] + BOX_GAP + half_sizes[other])
        offsets.append(offset)
        for item, distance in zip(row, offset, strict=True):
            centers[item] = distance - offset[-1] / 2
    above, below = _forces(component, component.above), _forces(component, component.below)
    both = [[*one, *other] for one, other in zip(above, below, strict=True)]
    ranks = range(len(component.rows))
    for number in range(rounds):
        use_both = number >= rounds // 2  # first one side at a time, then both
        for order, side in ((ranks, above), (reversed(ranks), below)):
            for rank in order:
                row = component.rows[rank]
                targets = [_target_of(item, both if use_both else side, centers) for item in row]
                for item, center in zip(row, _fit_positions(targets, offsets[rank]), strict=True):
                    centers[item] = center
    return [round(each, 1) for each in _straighten(component, centers, half_sizes)]


def _forces(
    component: LayerAssignment, neighbours: Sequence[Sequence[int]]
) -> list[list[tuple[int, float]]]:
    """Return the neighbours of each item, with the force of each edge."""
    return [
        [
            (other, EDGE_FORCES[component.is_waypoint(item) + component.is_waypoint(other)])
            for other in others
        ]
        for item, others in enumerate(neighbours)
    ]


def _target_of(
    item: int, forces: Sequence[Sequence[tuple[int, float]]], centers: Sequence[float]
) -> tuple[float, float]:
    """Return the position an item is drawn to, and the force. An item without edges keeps its position,
    weakly.
    """
    total = weighted_sum = 0.0
    for other, force in forces[item]:
        total += force
        weighted_sum += force * centers[other]
    return (weighted_sum / total, total) if total else (centers[item], 0.1)


def _fit_positions(targets: Sequence[tuple[float, float]], offset: Sequence[float]) -> list[float]:
    """Return the positions closest to the targets (least squares) that keep the order and the distances.

    After subtracting its offset, each position must be at least that of the item before. Adjacent items
    that violate this are pooled and share their mean.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for (target, weight), shift in zip(targets, offset, strict=True):
        mean, total, count = target - shift, weight, 1
        while pools and pools[-1][0] > mean:
            before, more, several = pools.pop()
            mean = (mean * total + before * more) / (total + more)
            total, count = total + more, count + several
        pools.append((mean, total, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    return [mean + shift for mean, shift in zip(means, offset, strict=True)]


def _straighten(
    component: LayerAssignment, centers: Sequence[float], half_sizes: Sequence[float]
) -> list[float]:
    """Move each chain without forks or joins to one position, as far as its ranks have room."""
    result = list(centers)
    before: dict[int, int] = {}
    behind: dict[int, int] = {}
    for row in component.rows:
        for one, other in pairwise(row):
            before[other], behind[one] = one, other
    for chain in _straight_chains(component):
        run: list[int] = []
        low, high = float("-inf"), float("inf")
        for item in [*chain, None]:
            if item is not None:
                minimum, maximum = float("-inf"), float("inf")
                if (neighbour := before.get(item)) is not None:
                    minimum = result[neighbour] + half_sizes[neighbour] + BOX_GAP + half_sizes[item]
                if (neighbour := behind.get(item)) is not None:
                    maximum = result[neighbour] - half_sizes[neighbour] - BOX_GAP - half_sizes[item]
                if max(low, minimum) <= min(high, maximum):
                    run.append(item)
                    low, high = max(low, minimum), min(high, maximum)
                    continue
            height = min(max(median(result[each] for each in run), low), high) if run else 0.0
            for each in run:
                result[each] = height
            if item is not None:
                run, low, high = [item], minimum, maximum
    return result


def _straight_chains(component: LayerAssignment) -> Iterator[list[int]]:
    """Yield the items of each chain of edges that should be straight."""
    follows: dict[int, int] = {}
    for item, below in enumerate(component.below):
        for other in below:
            is_only_edge = len(below) == len(component.above[other]) == 1
            if is_only_edge or (component.is_waypoint(item) and component.is_waypoint(other)):
                follows[item] = other
    followers = set(follows.values())
    for start in follows:
        if start not in followers:
            chain = [start]
            while chain[-1] in follows:
                chain.append(follows[chain[-1]])
            yield chain
