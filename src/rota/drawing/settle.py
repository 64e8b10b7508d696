"""How far across the flow each item of a layered graph lies, once the order of each rank is settled.

Every edge pulls its two ends together, the pieces of a long edge hardest; the order and the distances
within a rank are never given up. In the end whatever can be straight without pushing anybody is made
straight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from rota.drawing.layers import Layers

BESIDE = 16.0
"""Between boxes of one rank."""
KNOT = 5.0
"""Half of what an edge takes up between boxes."""
FORCES = (1.0, 2.0, 8.0)
"""How hard an edge pulls if none, one or both of its ends are knots: long edges are to be straight, short
ones may bend."""

ROUNDS = 10
WORK = 300_000
"""Edges looked at, at most, in all rounds; but there are two rounds at least."""


def rounds(parts: Sequence[Layers]) -> int:
    size = sum(len(joined) + 1 for part in parts for joined in part.below)
    return max(2, min(ROUNDS, WORK // (4 * max(size, 1))))


def middles(part: Layers, halves: Sequence[float], rounds: int) -> list[float]:
    """How far across the flow each item lies: as near to those it is joined to as the others of its
    rank allow."""
    middle = [0.0] * len(part.above)
    offsets: list[list[float]] = []
    for row in part.rows:
        offset = [0.0]
        for one, other in pairwise(row):
            offset.append(offset[-1] + halves[one] + BESIDE + halves[other])
        offsets.append(offset)
        for item, here in zip(row, offset, strict=True):
            middle[item] = here - offset[-1] / 2
    above, below = _forces(part, part.above), _forces(part, part.below)
    both = [[*one, *other] for one, other in zip(above, below, strict=True)]
    ranks = range(len(part.rows))
    for turn in range(rounds):
        calm = turn >= rounds // 2  # first each side in turn, then both at once
        for order, side in ((ranks, above), (reversed(ranks), below)):
            for rank in order:
                row = part.rows[rank]
                pulled = [_pulled(item, both if calm else side, middle) for item in row]
                for item, found in zip(row, _settle(pulled, offsets[rank]), strict=True):
                    middle[item] = found
    return [round(each, 1) for each in _straightened(part, middle, halves)]


def _forces(part: Layers, joined: Sequence[Sequence[int]]) -> list[list[tuple[int, float]]]:
    """What each item is joined to, and how hard it is pulled there."""
    return [
        [(other, FORCES[part.is_knot(item) + part.is_knot(other)]) for other in others]
        for item, others in enumerate(joined)
    ]


def _pulled(
    item: int, forces: Sequence[Sequence[tuple[int, float]]], middle: Sequence[float]
) -> tuple[float, float]:
    """Where to, and how hard. What nothing pulls stays, unless somebody else wants to be there."""
    total = drawn = 0.0
    for other, force in forces[item]:
        total += force
        drawn += force * middle[other]
    return (drawn / total, total) if total else (middle[item], 0.1)


def _settle(pulled: Sequence[tuple[float, float]], offset: Sequence[float]) -> list[float]:
    """The places nearest to what is wished (in squares) that keep the order and the distances.

    Without its offset each must be no less than the one before: neighbours that would be are pooled,
    and share their mean.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for (wish, weight), shift in zip(pulled, offset, strict=True):
        mean, total, count = wish - shift, weight, 1
        while pools and pools[-1][0] > mean:
            before, more, several = pools.pop()
            mean = (mean * total + before * more) / (total + more)
            total, count = total + more, count + several
        pools.append((mean, total, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    return [mean + shift for mean, shift in zip(means, offset, strict=True)]


def _straightened(part: Layers, middle: Sequence[float], halves: Sequence[float]) -> list[float]:
    """Each line that neither forks nor joins on one height, as far as there is room in its ranks."""
    found = list(middle)
    before: dict[int, int] = {}
    behind: dict[int, int] = {}
    for row in part.rows:
        for one, other in pairwise(row):
            before[other], behind[one] = one, other
    for line in _lines(part):
        run: list[int] = []
        low, high = float("-inf"), float("inf")
        for item in [*line, None]:
            if item is not None:
                least, most = float("-inf"), float("inf")
                if (near := before.get(item)) is not None:
                    least = found[near] + halves[near] + BESIDE + halves[item]
                if (near := behind.get(item)) is not None:
                    most = found[near] - halves[near] - BESIDE - halves[item]
                if max(low, least) <= min(high, most):
                    run.append(item)
                    low, high = max(low, least), min(high, most)
                    continue
            height = min(max(median(found[each] for each in run), low), high) if run else 0.0
            for each in run:
                found[each] = height
            if item is not None:
                run, low, high = [item], least, most
    return found


def _lines(part: Layers) -> Iterator[list[int]]:
    """The items of each way through the ranks that should be straight."""
    follows: dict[int, int] = {}
    for item, below in enumerate(part.below):
        for other in below:
            alone = len(below) == len(part.above[other]) == 1
            if alone or (part.is_knot(item) and part.is_knot(other)):
                follows[item] = other
    led = set(follows.values())
    for start in follows:
        if start not in led:
            line = [start]
            while line[-1] in follows:
                line.append(follows[line[-1]])
            yield line
