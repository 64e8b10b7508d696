"""Folding: a fan of ten thousand is drawn as a few of its jobs and one that stands for the rest.

Jobs are alike when they wait for the same jobs, in the same way, and the same jobs wait for them. Of
those alike, the ones somebody should look at stay: failed before running, running before succeeded. What
is folded away is still counted, by state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rota.drawing.label import BLANK, STATES, Edge, Label
from rota.model.graph import Graph

KEPT = 8
"""How many of those alike are drawn."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A graph to draw in place of another. Names that stand for many are keys of `folds`."""

    graph: Graph
    labels: Mapping[str, Label]
    after: Collection[Edge]
    folds: Mapping[str, tuple[str, ...]]


def fold(
    graph: Graph,
    labels: Mapping[str, Label] | None = None,
    *,
    after: Collection[Edge] = (),
    kept: int = KEPT,
) -> Folded:
    """Keep `kept` of those alike. One alone is never folded: its line would say less than its name."""
    labels = labels or {}
    loose = frozenset(after)
    stands: dict[str, str] = {}  # whoever is folded away, and under which name
    folds: dict[str, tuple[str, ...]] = {}
    said = dict(labels)
    for alike in _alike(graph, loose):
        if len(alike) <= kept + 1:
            continue
        urgent = sorted(alike, key=lambda name: _urgency(labels.get(name, BLANK)))
        shown = set(urgent[:kept])
        rest = tuple(name for name in alike if name not in shown)
        key = _unused(f"… {rest[-1]}", graph)
        folds[key] = rest
        stands.update(dict.fromkeys(rest, key))
        said[key] = _summary([labels.get(name, BLANK) for name in rest])
    if not folds:
        return Folded(graph, labels, loose, {})

    parents: dict[str, list[str]] = {}
    for name in graph.order:
        if name in stands and name != folds[stands[name]][-1]:
            continue  # the last of them brings in the one that stands for all
        into = [stands.get(parent, parent) for parent in graph.parents[name]]
        parents[stands.get(name, name)] = sorted(dict.fromkeys(into), key=folds.__contains__)
    kinds = {(stands.get(one, one), stands.get(other, other)) for one, other in loose}
    return Folded(Graph(parents), said, frozenset(kinds), folds)


def _alike(graph: Graph, loose: frozenset[Edge]) -> list[list[str]]:
    groups: dict[object, list[str]] = {}
    for name in graph.order:
        above = frozenset((parent, (parent, name) in loose) for parent in graph.parents[name])
        below = frozenset((child, (name, child) in loose) for child in graph.children[name])
        groups.setdefault((above, below), []).append(name)
    return list(groups.values())


def _urgency(label: Label) -> int:
    return STATES.index(label.state) if label.known else len(STATES)


def _unused(name: str, graph: Graph) -> str:
    while name in graph.parents:
        name += "…"
    return name


def _summary(labels: Sequence[Label]) -> Label:
    many = sum(label.many for label in labels)
    name = f"{many:,} more"
    states = Counter(label.state for label in labels)
    if len(states) == 1:
        return Label(state=labels[0].state, name=name, many=many)
    parts = (f"{count:,} {state or 'without a state'}" for state, count in states.most_common())
    return Label(detail=", ".join(parts), name=name, many=many)
