"""Folding: similar jobs share one box in a drawing, and no important job is hidden or lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from rota.drawing.collapse import collapse
from rota.drawing.label import NodeLabel
from rota.model.graph import Graph
from support.graphs import DIAMOND, fan, graphs


def test_collapse_wide_fan_keeps_few_jobs_and_a_summary_box() -> None:
    labels = {
        f"part{n}": NodeLabel("failed" if n % 1_000 == 5 else "succeeded") for n in range(9_998)
    }

    folded = collapse(fan(9_998), labels, max_similar=4)

    [(key, rest)] = folded.members.items()
    assert folded.graph.successors["split"] == folded.graph.predecessors["merge"]
    assert len(folded.graph.successors["split"]) == 5
    assert len(rest) == folded.labels[key].job_count == 9_994
    assert folded.labels[key].name == "9,994 more"
    assert folded.labels[key].detail == "9,988 succeeded, 6 failed"


def test_collapse_failed_and_running_jobs_stay_visible() -> None:
    labels = {f"part{n}": NodeLabel("succeeded") for n in range(50)}
    labels["part31"] = NodeLabel("failed")
    labels["part40"] = NodeLabel("running")

    folded = collapse(fan(50), labels, max_similar=3)

    shown = [name for name in folded.graph.order if name not in folded.members]
    assert shown == ["split", "part0", "part31", "part40", "merge"]


def test_collapse_rest_in_one_state_gets_that_state() -> None:
    folded = collapse(fan(20), {f"part{n}": NodeLabel("sleeping") for n in range(20)})

    [key] = folded.members
    assert folded.labels[key] == NodeLabel("sleeping", name="12 more", job_count=12)


def test_collapse_single_extra_job_stays_visible() -> None:
    assert collapse(fan(5), max_similar=4).members == {}
    assert [len(rest) for rest in collapse(fan(6), max_similar=4).members.values()] == [2]


def test_collapse_after_edges_and_data_edges_stay_separate() -> None:
    after = [("split", f"part{n}") for n in range(0, 20, 2)]

    folded = collapse(fan(20), after=after, max_similar=2)

    assert [len(rest) for rest in folded.members.values()] == [8, 8]
    even, odd = folded.members
    assert ("split", even) in folded.after
    assert ("split", odd) not in folded.after


def test_collapse_graph_without_similar_jobs_is_unchanged() -> None:
    folded = collapse(DIAMOND, max_similar=1)

    assert folded.graph is DIAMOND


def test_collapse_key_of_the_rest_is_no_job_name() -> None:
    graph = Graph({"a": [], "b": [], "c": [], "… c": ["a"], "… c…": ["… c"]})

    folded = collapse(Graph({**graph.predecessors, "d": [], "e": [], "… e": ["a"]}), max_similar=1)

    [key] = folded.members
    assert key not in {*graph.predecessors, "d", "e", "… e"}


@given(graphs(), some.integers(0, 3))
def test_collapse_every_job_is_shown_or_counted_with_its_edges(graph: Graph, kept: int) -> None:
    folded = collapse(graph, max_similar=kept)

    stands = {name: key for key, rest in folded.members.items() for name in rest}
    shown = {name for name in folded.graph.order if name not in folded.members}
    assert shown | set(stands) == set(graph.order)
    assert not shown & set(stands)
    for name in graph.order:
        wanted = {stands.get(parent, parent) for parent in graph.predecessors[name]}
        assert set(folded.graph.predecessors[stands.get(name, name)]) == wanted
