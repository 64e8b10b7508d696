"""Layers: each name on a rank after all it waits for, and each rank in an order with few crossings.

An edge that skips ranks goes through a *knot* on each rank it skips, so that the order leaves room for
it. All long edges of one parent share their knots: they leave as one line that branches.

Work is bounded. The longest edges go without knots once there would be too many, and sweeps end when
they stop helping or have cost enough. What is spent is counted, not timed: the same graph always gives
the same layers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rota.drawing.label import Edge
from rota.model.graph import Graph

MAX_WAYPOINTS = 8_000
MAX_WAYPOINT_PASSES = 80_000
"""Knots that all edges together may go through, those they share counted for each."""
MAX_SWEEPS = 24
MAX_SWEEP_EDGES = 200_000
"""Edges looked at while crossings are reduced."""


@dataclass(slots=True)
class LayerAssignment:
    """One connected part of a graph. Items below `len(names)` are names, those above are knots."""

    names: list[str]
    ranks: list[int]
    rows: list[list[int]] = field(default_factory=list)
    above: list[list[int]] = field(default_factory=list)
    """The items of the rank before that each item is joined to."""
    below: list[list[int]] = field(default_factory=list)
    waypoints: dict[Edge, list[int]] = field(default_factory=dict)
    """What each edge goes through."""

    def is_waypoint(self, item: int) -> bool:
        return item >= len(self.names)


def assign_layers(graph: Graph) -> list[LayerAssignment]:
    """One for each connected part, in the order of the graph."""
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
    """The longest way here; but who has more children than parents moves up to them, and the edges
    between become shorter."""
    ranks = dict(graph.depth)
    for name in reversed(graph.order):
        successors = graph.successors[name]
        if len(successors) > len(graph.predecessors[name]):
            ranks[name] = min(ranks[successor] for successor in successors) - 1
    return ranks


def components(graph: Graph) -> list[list[str]]:
    """The names of each connected part, in the order of the graph."""
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
    item_of = {name: item for item, name in enumerate(names)}
    first_rank = min(ranks[name] for name in names)
    layers = LayerAssignment(names, [ranks[name] - first_rank for name in names])
    layers.above = [[] for _ in names]
    layers.below = [[] for _ in names]
    chains: dict[int, list[int]] = {}
    waypoints_left, passes_left = (
        MAX_WAYPOINTS * len(names) // total_names,
        MAX_WAYPOINT_PASSES * len(names) // total_names,
    )
    edges = [
        (item_of[predecessor], item_of[name])
        for name in names
        for predecessor in graph.predecessors[name]
    ]
    edges = list(dict.fromkeys(edges))
    edges.sort(key=lambda edge: layers.ranks[edge[1]] - layers.ranks[edge[0]])
    for predecessor, successor in edges:
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
    """Depth first: what hangs together starts side by side, and a tree has no crossings at all."""
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
    """Change neighbours round where that alone undoes a crossing."""
    for row in layers.rows:
        for left in range(len(row) - 1):
            first, second = row[left], row[left + 1]
            crossings_now = crossings_swapped = 0
            for neighbours in (layers.above, layers.below):
                one_neighbours, other_neighbours = neighbours[first], neighbours[second]
                if (
                    len(one_neighbours) * len(other_neighbours) > 64
                ):  # it would cost more than it can mend
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
    """How many pairs of edges cross between neighbouring ranks."""
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
