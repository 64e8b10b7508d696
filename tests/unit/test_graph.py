"""Graphs: a topological order, or the cycle that prevents one."""

from __future__ import annotations

import pytest
from hypothesis import given

from rota.errors import DefinitionError
from rota.model.graph import Graph
from support.executed_lines import count_lines
from support.graphs import DIAMOND, chain, graphs


@given(graphs())
def test_graph_order_is_topological(graph: Graph) -> None:
    at = {name: number for number, name in enumerate(graph.order)}

    assert sorted(graph.order) == sorted(graph.predecessors)
    for name, parents in graph.predecessors.items():
        assert all(at[parent] < at[name] for parent in parents)
        assert all(name in graph.successors[parent] for parent in parents)


@given(graphs())
def test_graph_roots_have_no_predecessors_and_sinks_no_successors(graph: Graph) -> None:
    assert set(graph.roots) == {name for name, parents in graph.predecessors.items() if not parents}
    waited_for = {parent for parents in graph.predecessors.values() for parent in parents}
    assert set(graph.sinks) == set(graph.predecessors) - waited_for


def test_graph_order_of_independent_names_is_kept() -> None:
    assert Graph({"b": [], "a": [], "c": []}).order == ("b", "a", "c")
    assert Graph({"d": ["b"], "b": [], "a": []}).order == ("b", "d", "a")
    assert DIAMOND.depth == {"a": 0, "b": 1, "c": 1, "d": 2}


@pytest.mark.parametrize(
    ("parents", "circle"),
    [
        ({"a": ["a"]}, "a waits for a"),
        ({"a": ["b"], "b": ["a"]}, "a waits for b waits for a"),
        ({"x": ["b"], "a": ["b"], "b": ["c"], "c": ["a"]}, "b waits for c waits for a waits for b"),
    ],
)
def test_graph_cycle_is_refused_with_its_whole_path(
    parents: dict[str, list[str]], circle: str
) -> None:
    with pytest.raises(
        DefinitionError, match=f"^{circle}: none of them could ever start; take one"
    ):
        Graph(parents)


def test_graph_chain_of_10000_is_built_with_linear_work() -> None:
    graph = chain(10_000)

    assert graph.depth["j9999"] == 9_999
    assert count_lines(lambda: chain(10_000)) < 2.1 * count_lines(lambda: chain(5_000))


def test_graph_cycle_of_5000_is_found_without_recursion() -> None:
    parents = {f"n{n}": [f"n{(n + 1) % 5000}"] for n in range(5000)}

    with pytest.raises(DefinitionError, match="n0 waits for n1 waits for n2"):
        Graph(parents)
