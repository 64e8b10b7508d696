"""Grouping: a graph of any size as a few hundred boxes, some of which represent many jobs.

The grouping depends only on the shape of the graph, not on the states of the jobs. The picture of a running
run therefore keeps its layout and changes only its colours.

1. Group similar jobs: of one kind, with the same predecessors and successors.
2. If there are still too many boxes, group jobs of one kind and rank.
3. If there are still too many, group whole ranks, then several ranks together.

Edges always lead from a rank to a later one, so a group is drawn like a single job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rota.drawing.label import Edge
from rota.model.graph import Graph

MAX_BOXES = 250
"""Limit of boxes in a layout."""
MAX_EDGES = 750
"""Limit of edges in a layout. With both limits a layout takes about a tenth of a second."""
MAX_SIMILAR = 12
"""Number of similar jobs up to which they are drawn one by one."""
MAX_EXPANDED = 100
"""Number of jobs drawn one by one in an expanded group."""


@dataclass(frozen=True, slots=True)
class GroupedGraph:
    """A graph to draw in place of another. Names that represent many jobs are keys of `members`."""

    graph: Graph
    after: frozenset[Edge]
    members: Mapping[str, tuple[str, ...]]
    is_exact: bool
    """True if only similar jobs are grouped, so that every edge is exact."""


def group(
    graph: Graph,
    kinds: Mapping[str, str],
    *,
    after: Collection[Edge] = (),
    expanded: Collection[str] = (),
    max_boxes: int = MAX_BOXES,
) -> GroupedGraph:
    """Group a graph to at most `max_boxes` boxes.

    `expanded` has the keys of groups whose jobs are drawn one by one, as far as there is room.
    """
    order_only = frozenset(after)
    similar = group_similar(graph, order_only, kinds)
    grouped = _build(graph, similar, order_only, expanded, MAX_SIMILAR, is_exact=True)
    if _fits(grouped, max_boxes):
        return grouped
    grouped = _build(graph, _group_by_rank(graph, kinds), order_only, expanded, 1, is_exact=False)
    if _fits(grouped, max_boxes):
        return grouped
    if expanded:  # no room to expand groups
        return group(graph, kinds, after=after, max_boxes=max_boxes)
    max_ranks = max_boxes
    while not _fits(grouped, max_boxes):
        grouped = _build(graph, _group_ranks(graph, max_ranks), order_only, (), 1, is_exact=False)
        max_ranks //= 2
    return grouped


def _fits(grouped: GroupedGraph, max_boxes: int) -> bool:
    edge_count = sum(len(predecessors) for predecessors in grouped.graph.predecessors.values())
    return (
        len(grouped.graph.order) <= max_boxes and edge_count <= MAX_EDGES * max_boxes // MAX_BOXES
    )


def group_similar(
    graph: Graph, order_only: frozenset[Edge], kinds: Mapping[str, str] | None = None
) -> list[list[str]]:
    """Group jobs of one kind that have the same predecessors and successors, by the same kinds of edges."""
    groups: dict[object, list[str]] = {}
    for name in graph.order:
        above = frozenset(
            (predecessor, (predecessor, name) in order_only)
            for predecessor in graph.predecessors[name]
        )
        below = frozenset(
            (successor, (name, successor) in order_only) for successor in graph.successors[name]
        )
        groups.setdefault((kinds and kinds[name], above, below), []).append(name)
    return list(groups.values())


def _group_by_rank(graph: Graph, kinds: Mapping[str, str]) -> list[list[str]]:
    groups: dict[object, list[str]] = {}
    for name in graph.order:
        groups.setdefault((graph.depth[name], kinds[name]), []).append(name)
    return list(groups.values())


def _group_ranks(graph: Graph, max_groups: int) -> list[list[str]]:
    ranks = max(graph.depth.values(), default=0) + 1
    ranks_per_group = -(-ranks // max_groups)
    groups: dict[int, list[str]] = {}
    for name in graph.order:
        groups.setdefault(graph.depth[name] // ranks_per_group, []).append(name)
    return list(groups.values())


def _hidden_members(
    groups: list[list[str]], expanded: Collection[str], max_similar: int
) -> dict[str, tuple[str, ...]]:
    """Return the jobs that each large group represents; an expanded group shows its first jobs."""
    members: dict[str, tuple[str, ...]] = {}
    for group in groups:
        key = f"{group[0]}~"
        hidden = group[MAX_EXPANDED:] if key in expanded else group
        if len(group) > max_similar and len(hidden) > 1:
            members[key] = tuple(hidden)
    return members


def _build(
    graph: Graph,
    groups: list[list[str]],
    order_only: frozenset[Edge],
    expanded: Collection[str],
    max_similar: int,
    *,
    is_exact: bool,
) -> GroupedGraph:
    members = _hidden_members(groups, expanded, max_similar)
    if not members:
        return GroupedGraph(graph, order_only, {}, is_exact)
    predecessors, after = merge_members(graph, graph.order, members, order_only)
    return GroupedGraph(Graph(predecessors), after, members, is_exact)


def merge_members(
    graph: Graph,
    names: Iterable[str],
    members: Mapping[str, tuple[str, ...]],
    order_only: frozenset[Edge],
) -> tuple[dict[str, list[str]], frozenset[Edge]]:
    """Return the predecessors of `names`, and the edges among them that carry no data, after the keys of
    `members` have replaced their members.
    """
    representatives = {job: key for key, jobs in members.items() for job in jobs}
    predecessors: dict[str, dict[str, None]] = {}
    order_edges: set[Edge] = set()
    data_edges: set[Edge] = set()
    for name in names:
        key = representatives.get(name, name)
        sources = predecessors.setdefault(key, {})
        for predecessor in graph.predecessors[name]:
            source = representatives.get(predecessor, predecessor)
            edges = order_edges if (predecessor, name) in order_only else data_edges
            edges.add((source, key))
            if source != key:
                sources[source] = None
    merged = {key: list(sources) for key, sources in predecessors.items()}
    return merged, frozenset(order_edges - data_edges)
