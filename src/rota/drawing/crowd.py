"""Crowds: a graph of any size as one of a few hundred boxes, some of which stand for many jobs.

Which jobs stand together depends on the shape of the graph and on nothing else, least of all on what has
become of them: while a run goes on its picture keeps its places, and only changes its colours.

First those that are alike: of one kind, with the same jobs before and behind them. If that leaves more
boxes than can be laid out in time, those of one kind and rank; if it still does, whole ranks, and several
of them. Edges always lead from a rank to a later one, so what stands for many can be drawn as what stands
for one is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rota.drawing.label import Edge
from rota.model.graph import Graph

BOXES = 250
"""As many as are laid out."""
LINES = 750
"""… and as many edges between them. That takes a tenth of a second, however they hang together."""
ALIKE = 12
"""Of those alike, so many are drawn one by one."""
OPENED = 100
"""Of a crowd that is opened, so many are."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """A graph to draw in place of another. Names that stand for many are keys of `folds`."""

    graph: Graph
    after: frozenset[Edge]
    folds: Mapping[str, tuple[str, ...]]
    whole: bool
    """Only those alike stand together, or nobody: each edge is what it says."""


def crowd(
    graph: Graph,
    kinds: Mapping[str, str],
    *,
    after: Collection[Edge] = (),
    opened: Collection[str] = (),
    boxes: int = BOXES,
) -> Crowd:
    """`opened`: keys of crowds whose jobs are drawn one by one, as far as there is room."""
    loose = frozenset(after)
    made = _made(graph, _alike(graph, kinds, loose), loose, opened, ALIKE, whole=True)
    if _fits(made, boxes):
        return made
    made = _made(graph, _ranked(graph, kinds), loose, opened, 1, whole=False)
    if _fits(made, boxes):
        return made
    if opened:  # there is no room to open anything
        return crowd(graph, kinds, after=after, boxes=boxes)
    ranks = boxes
    while not _fits(made, boxes):
        made = _made(graph, _layered(graph, ranks), loose, (), 1, whole=False)
        ranks //= 2
    return made


def _fits(made: Crowd, boxes: int) -> bool:
    lines = sum(len(parents) for parents in made.graph.parents.values())
    return len(made.graph.order) <= boxes and lines <= LINES * boxes // BOXES


def _alike(graph: Graph, kinds: Mapping[str, str], loose: frozenset[Edge]) -> list[list[str]]:
    groups: dict[object, list[str]] = {}
    for name in graph.order:
        above = frozenset((parent, (parent, name) in loose) for parent in graph.parents[name])
        below = frozenset((child, (name, child) in loose) for child in graph.children[name])
        groups.setdefault((kinds[name], above, below), []).append(name)
    return list(groups.values())


def _ranked(graph: Graph, kinds: Mapping[str, str]) -> list[list[str]]:
    groups: dict[object, list[str]] = {}
    for name in graph.order:
        groups.setdefault((graph.depth[name], kinds[name]), []).append(name)
    return list(groups.values())


def _layered(graph: Graph, most: int) -> list[list[str]]:
    ranks = max(graph.depth.values(), default=0) + 1
    together = -(-ranks // most)
    groups: dict[int, list[str]] = {}
    for name in graph.order:
        groups.setdefault(graph.depth[name] // together, []).append(name)
    return list(groups.values())


def _made(
    graph: Graph,
    groups: list[list[str]],
    loose: frozenset[Edge],
    opened: Collection[str],
    most: int,
    *,
    whole: bool,
) -> Crowd:
    stands: dict[str, str] = {}  # whoever is one of many, and under which name
    folds: dict[str, tuple[str, ...]] = {}
    for group in groups:
        if len(group) <= most:
            continue
        key = f"{group[0]}~"
        rest = group[OPENED:] if key in opened else group
        if len(rest) > 1:
            folds[key] = tuple(rest)
            stands.update(dict.fromkeys(rest, key))
    if not folds:
        return Crowd(graph, loose, {}, whole)
    parents: dict[str, dict[str, None]] = {}
    for name in graph.order:
        key = stands.get(name, name)
        into = parents.setdefault(key, {})
        into.update((stands.get(each, each), None) for each in graph.parents[name])
        into.pop(key, None)
    firm = {
        (stands.get(parent, parent), stands.get(name, name))
        for name in graph.order
        for parent in graph.parents[name]
        if (parent, name) not in loose
    }
    kinds = {(stands.get(one, one), stands.get(other, other)) for one, other in loose}
    made = Graph({name: list(into) for name, into in parents.items()})
    return Crowd(made, frozenset(kinds - firm), folds, whole)
