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

KNOTS = 8_000
PASSED = 80_000
"""Knots that all edges together may go through, those they share counted for each."""
SWEEPS = 24
WORK = 200_000
"""Edges looked at while crossings are reduced."""


@dataclass(slots=True)
class Layers:
    """One connected part of a graph. Items below `len(names)` are names, those above are knots."""

    names: list[str]
    rank: list[int]
    rows: list[list[int]] = field(default_factory=list)
    above: list[list[int]] = field(default_factory=list)
    """The items of the rank before that each item is joined to."""
    below: list[list[int]] = field(default_factory=list)
    knots: dict[Edge, list[int]] = field(default_factory=dict)
    """What each edge goes through."""

    def is_knot(self, item: int) -> bool:
        return item >= len(self.names)


def layers(graph: Graph) -> list[Layers]:
    """One for each connected part, in the order of the graph."""
    rank = _ranks(graph)
    found = [_with_knots(graph, part, rank, len(graph.order)) for part in parts(graph)]
    size = sum(len(joined) + 1 for each in found for joined in each.below)
    sweeps = max(2, min(SWEEPS, WORK // max(size, 1)))
    for each in found:
        _untangle(each, sweeps)
    return found


def _ranks(graph: Graph) -> dict[str, int]:
    """The longest way here; but who has more children than parents moves up to them, and the edges
    between become shorter."""
    rank = dict(graph.depth)
    for name in reversed(graph.order):
        children = graph.children[name]
        if len(children) > len(graph.parents[name]):
            rank[name] = min(rank[child] for child in children) - 1
    return rank


def parts(graph: Graph) -> list[list[str]]:
    """The names of each connected part, in the order of the graph."""
    part: dict[str, int] = {}
    for start in graph.order:
        if start in part:
            continue
        part[start] = number = len(part)
        pile = [start]
        while pile:
            name = pile.pop()
            for near in (*graph.parents[name], *graph.children[name]):
                if near not in part:
                    part[near] = number
                    pile.append(near)
    found: dict[int, list[str]] = {}
    for name in graph.order:
        found.setdefault(part[name], []).append(name)
    return list(found.values())


def _with_knots(graph: Graph, names: list[str], rank: dict[str, int], of: int) -> Layers:
    number = {name: item for item, name in enumerate(names)}
    lowest = min(rank[name] for name in names)
    made = Layers(names, [rank[name] - lowest for name in names])
    made.above = [[] for _ in names]
    made.below = [[] for _ in names]
    trunks: dict[int, list[int]] = {}
    knots, passed = KNOTS * len(names) // of, PASSED * len(names) // of
    edges = [(number[parent], number[name]) for name in names for parent in graph.parents[name]]
    edges = list(dict.fromkeys(edges))
    edges.sort(key=lambda edge: made.rank[edge[1]] - made.rank[edge[0]])
    for parent, child in edges:
        skipped = made.rank[child] - made.rank[parent] - 1
        trunk = trunks.setdefault(parent, [])
        knots -= max(0, skipped - len(trunk))
        passed -= skipped
        through: list[int] = []
        if skipped == 0 or min(knots, passed) >= 0:
            while len(trunk) < skipped:
                trunk.append(_knot(made, trunk[-1] if trunk else parent))
            through = trunk[:skipped]
            _join(made, through[-1] if through else parent, child)
        made.knots[names[parent], names[child]] = through
    _first_order(made)
    return made


def _knot(made: Layers, before: int) -> int:
    item = len(made.above)
    made.rank.append(made.rank[before] + 1)
    made.above.append([])
    made.below.append([])
    _join(made, before, item)
    return item


def _join(made: Layers, upper: int, lower: int) -> None:
    made.below[upper].append(lower)
    made.above[lower].append(upper)


def _first_order(made: Layers) -> None:
    """Depth first: what hangs together starts side by side, and a tree has no crossings at all."""
    made.rows = [[] for _ in range(max(made.rank) + 1)]
    seen = [False] * len(made.above)
    for start in range(len(made.names)):
        if made.above[start]:
            continue
        pile = [start]
        while pile:
            item = pile.pop()
            if not seen[item]:
                seen[item] = True
                made.rows[made.rank[item]].append(item)
                pile.extend(reversed(made.below[item]))


def _untangle(made: Layers, sweeps: int) -> None:
    place = [0] * len(made.above)
    for row in made.rows:
        _number(row, place)
    best, fewest = [list(row) for row in made.rows], crossings(made)
    idle = 0
    for sweep in range(sweeps):
        if fewest == 0 or idle == 4:
            break
        down = sweep % 2 == 0
        joined = made.above if down else made.below
        for row in made.rows[1:] if down else made.rows[-2::-1]:
            centre = {item: _centre(joined[item], place, place[item]) for item in row}
            row.sort(key=centre.__getitem__)
            _number(row, place)
        _swap(made, place)
        idle += 1
        if (found := crossings(made)) < fewest:
            best, fewest, idle = [list(row) for row in made.rows], found, 0
    made.rows = best


def _number(row: Sequence[int], place: list[int]) -> None:
    for position, item in enumerate(row):
        place[item] = position


def _centre(joined: Sequence[int], place: list[int], otherwise: int) -> float:
    return sum(place[item] for item in joined) / len(joined) if joined else otherwise


def _swap(made: Layers, place: list[int]) -> None:
    """Change neighbours round where that alone undoes a crossing."""
    for row in made.rows:
        for left in range(len(row) - 1):
            one, other = row[left], row[left + 1]
            now = turned = 0
            for joined in (made.above, made.below):
                here, there = joined[one], joined[other]
                if len(here) * len(there) > 64:  # it would cost more than it can mend
                    break
                for near in here:
                    for far in there:
                        now += place[near] > place[far]
                        turned += place[near] < place[far]
            else:
                if turned < now:
                    row[left], row[left + 1] = other, one
                    place[one], place[other] = left + 1, left


def crossings(made: Layers) -> int:
    """How many pairs of edges cross between neighbouring ranks."""
    return sum(_between(made, upper, lower) for upper, lower in pairwise(made.rows))


def _between(made: Layers, upper: Sequence[int], lower: Sequence[int]) -> int:
    if len(upper) == 1 or len(lower) == 1:
        return 0
    place = {item: position for position, item in enumerate(lower)}
    passed: list[int] = []
    found = 0
    for item in upper:
        ends = sorted(place[each] for each in made.below[item])
        found += sum(len(passed) - bisect_right(passed, end) for end in ends)
        for end in ends:
            insort(passed, end)
    return found
