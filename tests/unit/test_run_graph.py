"""Graph of a run: one layout per shape, with every job in any state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest

from rota.drawing.interactive_svg import layout_boxes
from rota.drawing.layout import GraphLayout
from rota.model.graph import Graph
from rota.store.read.runs import JobRow
from rota.web.dashboard.run import graph as run_graph
from rota.web.dashboard.run.graph import PARENT_KEY, build_picture, count_states
from support.run_rows import START, job, run


def chain_of_jobs(states: list[str], first: int = 10) -> list[JobRow]:
    """Return a chain of jobs a, b, c …"""
    last = first + len(states) - 1
    return [
        job(
            state,
            first + place,
            task=f"f.{'abcdefgh'[place]}",
            successors=[first + place + 1] if first + place < last else [],
            input_jobs=[first + place - 1] if place else [],
        )
        for place, state in enumerate(states)
    ]


def test_run_graph_runs_of_same_shape_share_one_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    laid: list[Graph] = []

    def counting(graph: Graph, names: Mapping[str, str]) -> GraphLayout:
        laid.append(graph)
        return layout_boxes(graph, names)

    monkeypatch.setattr(run_graph, "layout_boxes", counting)
    other = msgspec.structs.replace(run(3), run=2, created=START + timedelta(days=1))

    one = build_picture(run(3), chain_of_jobs(["succeeded", "running", "waiting"]))
    same = build_picture(run(3), chain_of_jobs(["succeeded", "succeeded", "failed"]))
    alike = build_picture(other, chain_of_jobs(["waiting"] * 3, first=500))
    longer = build_picture(run(4), chain_of_jobs(["waiting"] * 4))

    assert one.shape is same.shape is alike.shape
    assert one.shape is not longer.shape
    assert len(laid) <= 2
    assert [card.state for card in one.details.values()] == ["succeeded", "running", "waiting"]
    assert [card.state for card in same.details.values()] == ["succeeded", "succeeded", "failed"]
    assert [card.href for card in alike.details.values()] == ["?job=500", "?job=501", "?job=502"]


def test_run_graph_states_json_matches_the_svg() -> None:
    drawn = build_picture(run(2), chain_of_jobs(["succeeded", "running"]))

    told = json.loads(drawn.states_json())

    assert [each[:2] for each in told] == [["0", "succeeded"], ["1", "running"]]
    svg = drawn.svg("a run", drawn.key_of(11))
    assert svg.count('class="job running"') == 1
    assert svg.index('aria-current="true"') > svg.index('data-key="1"')


def test_run_graph_group_shows_state_counts_with_failed_first() -> None:
    parts = [
        job("failed" if number == 7 else "succeeded", number + 3, task=f"f.part_{number}")
        for number in range(40)
    ]
    split = job("succeeded", 2, task="f.split", successors=[each.job for each in parts])
    jobs = [split, *(msgspec.structs.replace(each, input_jobs=[2]) for each in parts)]

    drawn = build_picture(run(41), jobs)

    [key] = drawn.shape.grouped.members
    card = drawn.details[key]
    assert (card.name, card.state, card.job_count) == ("part_* × 40", "failed", 40)
    assert card.remark == "1 failed, 39 succeeded"
    assert card.shares == [("failed", 1 / 40), ("succeeded", 39 / 40)]
    assert drawn.key_of(10) == key
    assert count_states(drawn.members[key]) == [("failed", 1), ("succeeded", 39)]
    opened = build_picture(run(41), jobs, expanded=[key])
    assert len(opened.details) == 41
    assert opened.details["8"].href == f"?open={key}&job=10"


def test_run_graph_child_jobs_are_successors_of_the_parent() -> None:
    calls = msgspec.structs.replace(run(3), flow="", parent=99)

    drawn = build_picture(calls, chain_of_jobs(["succeeded"] * 3))

    parents = drawn.shape.grouped.graph.predecessors
    assert {key: list(each) for key, each in parents.items()} == {
        PARENT_KEY: [],
        **{str(number): [PARENT_KEY] for number in range(3)},
    }
    assert drawn.details[PARENT_KEY].name == "job 99"
