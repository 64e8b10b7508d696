"""Collapsing of wide graphs: ten thousand similar jobs are drawn as a few of them and one box for the rest.

Jobs are similar if they have the same predecessors and successors, by the same kinds of edges. The most
urgent ones remain visible: failed before running, running before succeeded. Collapsed jobs are counted by
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rota.drawing.grouping import group_similar, merge_members
from rota.drawing.label import EMPTY_LABEL, Edge, NodeLabel, urgency
from rota.model.graph import Graph

MAX_SIMILAR = 8
"""Number of similar jobs that are drawn."""


@dataclass(frozen=True, slots=True)
class CollapsedGraph:
    """A graph to draw in place of another. Names that represent many jobs are keys of `members`."""

    graph: Graph
    labels: Mapping[str, NodeLabel]
    after: Collection[Edge]
    members: Mapping[str, tuple[str, ...]]


def collapse(
    graph: Graph,
    labels: Mapping[str, NodeLabel] | None = None,
    *,
    after: Collection[Edge] = (),
    max_similar: int = MAX_SIMILAR,
) -> CollapsedGraph:
    """Keep `max_similar` of each set of similar jobs, and collapse the rest.

    A single job is never collapsed: the summary would be less informative than its name.
    """
    labels = labels or {}
    order_only = frozenset(after)
    members: dict[str, tuple[str, ...]] = {}
    all_labels = dict(labels)
    for similar in group_similar(graph, order_only):
        if len(similar) <= max_similar + 1:
            continue
        rest = _least_urgent(similar, labels, max_similar)
        key = _unused_name(f"… {rest[-1]}", graph)
        members[key] = rest
        all_labels[key] = _summary([labels.get(name, EMPTY_LABEL) for name in rest])
    if not members:
        return CollapsedGraph(graph, labels, order_only, {})
    # The last member adds the box of all members, after the jobs that are shown.
    hidden = {name for rest in members.values() for name in rest[:-1]}
    names = (name for name in graph.order if name not in hidden)
    predecessors, order_edges = merge_members(graph, names, members, order_only)
    merged = Graph(
        {name: sorted(sources, key=members.__contains__) for name, sources in predecessors.items()}
    )
    return CollapsedGraph(merged, all_labels, order_edges, members)


def _least_urgent(
    similar: Sequence[str], labels: Mapping[str, NodeLabel], max_shown: int
) -> tuple[str, ...]:
    """Return the jobs that are not among the `max_shown` most urgent ones."""
    by_urgency = sorted(similar, key=lambda name: urgency(labels.get(name, EMPTY_LABEL).state))
    shown = set(by_urgency[:max_shown])
    return tuple(name for name in similar if name not in shown)


def _unused_name(name: str, graph: Graph) -> str:
    while name in graph.predecessors:
        name += "…"
    return name


def _summary(labels: Sequence[NodeLabel]) -> NodeLabel:
    job_count = sum(label.job_count for label in labels)
    name = f"{job_count:,} more"
    states = Counter(label.state for label in labels)
    if len(states) == 1:
        return NodeLabel(state=labels[0].state, name=name, job_count=job_count)
    parts = (f"{count:,} {state or 'without a state'}" for state, count in states.most_common())
    return NodeLabel(detail=", ".join(parts), name=name, job_count=job_count)
