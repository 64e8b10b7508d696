"""How far across the flow each item of a layered graph lies, once the order of each rank is settled.

Every edge pulls its two ends together, the pieces of a long edge hardest; the order and the distances
within a rank are never given up. In the end whatever can be straight without pushing anybody is made
straight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from rota.drawing.layers import LayerAssignment

BOX_GAP = 16.0
"""Between boxes of one rank."""
WAYPOINT_HALF_SIZE = 5.0
"""Half of what an edge takes up between boxes."""
EDGE_FORCES = (1.0, 2.0, 8.0)
"""How hard an edge pulls if none, one or both of its ends are knots: long edges are to be straight, short
ones may bend."""

MAX_ROUNDS = 10
MAX_PLACEMENT_EDGES = 300_000
"""Edges looked at, at most, in all rounds; but there are two rounds at least."""


def round_count(components: Sequence[LayerAssignment]) -> int:
    size = sum(len(neighbours) + 1 for component in components for neighbours in component.below)
    return max(2, min(MAX_ROUNDS, MAX_PLACEMENT_EDGES // (4 * max(size, 1))))


def find_centers(
    component: LayerAssignment, half_sizes: Sequence[float], rounds: int
) -> list[float]:
    """How far across the flow each item lies: as near to those it is joined to as the others of its
    rank allow."""
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
        use_both = number >= rounds // 2  # first each side in turn, then both at once
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
    """What each item is joined to, and how hard it is pulled there."""
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
    """Where to, and how hard. What nothing pulls stays, unless somebody else wants to be there."""
    total = weighted_sum = 0.0
    for other, force in forces[item]:
        total += force
        weighted_sum += force * centers[other]
    return (weighted_sum / total, total) if total else (centers[item], 0.1)


def _fit_positions(targets: Sequence[tuple[float, float]], offset: Sequence[float]) -> list[float]:
    """The places nearest to what is wished (in squares) that keep the order and the distances.

    Without its offset each must be no less than the one before: neighbours that would be are pooled,
    and share their mean.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
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
    """Each line that neither forks nor joins on one height, as far as there is room in its ranks."""
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
    """The items of each way through the ranks that should be straight."""
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
