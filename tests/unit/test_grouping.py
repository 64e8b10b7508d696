"""Grouping: any graph becomes one that can be laid out in bounded time, and no job is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.drawing.grouping import MAX_BOXES, MAX_EDGES, MAX_EXPANDED, MAX_SIMILAR, group
from rota.model.graph import Graph
from support.graphs import DIAMOND, chain, crossbar, fan, graphs


def parallel_chains(many: int) -> Graph:
    """Return a graph of equal chains in which no two jobs have the same neighbours."""
    parents: dict[str, list[str]] = {"split": []}
    for n in range(many):
        parents |= {f"get{n}": ["split"], f"read{n}": [f"get{n}"], f"put{n}": [f"read{n}"]}
    return Graph(parents | {"merge": [f"put{n}" for n in range(many)]})


def kinds(graph: Graph) -> dict[str, str]:
    return {name: name.rstrip("0123456789") for name in graph.order}


def random_graph(size: int, near: int = 2_000, many: int = 3) -> Graph:
    """Return a graph in which each job waits for up to `many` of the `near` jobs before it."""
    chance = random.Random(5)
    return Graph(
        {
            f"t{n}": sorted({f"t{chance.randrange(max(n - near, 0), n)}" for _ in range(many)})
            if n
            else []
            for n in range(size)
        }
    )


def test_group_small_graph_is_unchanged() -> None:
    made = group(DIAMOND, kinds(DIAMOND))

    assert made.graph is DIAMOND
    assert made.is_exact
    assert not made.members


def test_group_wide_fan_becomes_one_box() -> None:
    made = group(fan(1_998), kinds(fan(1_998)))

    [(key, members)] = made.members.items()
    assert list(made.graph.order) == ["split", key, "merge"]
    assert len(members) == 1_998
    assert made.is_exact


def test_group_fan_up_to_max_similar_is_drawn_whole() -> None:
    assert group(fan(MAX_SIMILAR), kinds(fan(MAX_SIMILAR))).members == {}
    assert len(group(fan(MAX_SIMILAR + 1), kinds(fan(MAX_SIMILAR + 1))).members) == 1


def test_group_jobs_of_different_kinds_have_separate_boxes() -> None:
    graph = fan(40)
    named = {name: "even" if name[-1] in "02468" else "odd" for name in graph.order}

    assert [len(each) for each in group(graph, named).members.values()] == [20, 20]


def test_group_expanded_box_shows_jobs_up_to_limit() -> None:
    graph = fan(250)
    [key] = group(graph, kinds(graph)).members

    made = group(graph, kinds(graph), expanded=[key])

    assert [len(each) for each in made.members.values()] == [250 - MAX_EXPANDED]
    assert len(made.graph.order) == 2 + MAX_EXPANDED + 1


def test_group_similar_chains_are_merged_only_above_limit() -> None:
    assert group(parallel_chains(20), kinds(parallel_chains(20))).members == {}

    made = group(parallel_chains(600), kinds(parallel_chains(600)))

    assert [len(each) for each in made.members.values()] == [600, 600, 600]
    assert not made.is_exact


@pytest.mark.parametrize(
    "graph",
    [
        *(chain(2_000), fan(9_998), parallel_chains(700), crossbar(20, 100)),
        *(random_graph(2_000), random_graph(2_000, 40), random_graph(240, many=10)),
    ],
)
def test_group_large_graph_is_bounded_and_counts_every_job(graph: Graph) -> None:
    for opened in ((), ["t0~", "part0~", "get0~"]):
        made = group(graph, kinds(graph), expanded=opened)

        assert len(made.graph.order) <= MAX_BOXES
        assert sum(len(each) for each in made.graph.predecessors.values()) <= MAX_EDGES
        shown = [name for name in made.graph.order if name not in made.members]
        counted = [*shown, *(name for each in made.members.values() for name in each)]
        assert sorted(counted) == sorted(graph.order)


@given(graphs(), some.integers(1, 6))
def test_group_every_edge_is_kept_or_inside_a_box(graph: Graph, boxes: int) -> None:
    made = group(graph, dict.fromkeys(graph.order, "job"), max_boxes=boxes)

    stands = {name: key for key, names in made.members.items() for name in names}
    for name in graph.order:
        for parent in graph.predecessors[name]:
            one, other = stands.get(parent, parent), stands.get(name, name)
            assert one == other or one in made.graph.predecessors[other]


def test_group_edge_is_after_only_if_all_merged_edges_are() -> None:
    graph = fan(30)
    some_of = [("split", f"part{n}") for n in range(30)]

    assert group(graph, kinds(graph), after=some_of).after == {("split", "part0~")}

    grouped = group(parallel_chains(600), kinds(parallel_chains(600)), after=[("get7", "read7")])
    assert grouped.after == frozenset()
