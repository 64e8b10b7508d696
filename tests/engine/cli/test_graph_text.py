"""Graph of a run as text: one line for each job, no line too wide, readable without Unicode."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rota.cli.graph_text import ASCII_STATE_MARKS, STATE_MARKS, draw_graph
from rota.drawing.label import STATES, NodeLabel
from rota.model.graph import Graph

DIAMOND = Graph({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]})
FAN = Graph(
    {
        "split": [],
        **{f"part{n}": ["split"] for n in range(9_998)},
        "merge": [f"part{n}" for n in range(9_998)],
    }
)


@some.composite
def graphs(draw: some.DrawFn) -> Graph:
    parents: dict[str, list[str]] = {}
    for number in range(draw(some.integers(1, 20))):
        places = draw(some.lists(some.integers(0, number), unique=True, max_size=5))
        parents[f"j{number}"] = [f"j{place}" for place in places if place < number]
    return Graph(parents)


def test_graph_text_line_has_name_state_time_and_error() -> None:
    labels = {
        "a": NodeLabel("succeeded", "1.2 s"),
        "b": NodeLabel("failed", "attempt 3", "ValueError: no"),
        "c": NodeLabel("running", "12 s"),
        "d": NodeLabel("waiting"),
    }

    lines = draw_graph(DIAMOND, labels)

    assert [line.plain for line in lines] == [
        "✓ a      succeeded  1.2 s",
        "├─✗ b    failed     attempt 3  ValueError: no",
        "╰─│─◐ c  running    12 s",
        "○─┴─╯ d  waiting",
    ]
    assert "red" in {str(span.style) for span in lines[1].spans}


def test_graph_text_without_states_has_only_names() -> None:
    assert [line.plain for line in draw_graph(DIAMOND)] == ["● a", "├─● b", "╰─│─● c", "●─┴─╯ d"]


def test_graph_text_separate_parts_have_an_empty_line_between() -> None:
    graph = Graph({"a": [], "x": [], "b": ["a"]})

    assert [line.plain for line in draw_graph(graph)] == ["● a", "● b", "", "● x"]


def test_graph_text_similar_jobs_share_a_counted_line() -> None:
    labels = {name: NodeLabel("succeeded") for name in FAN.order}
    labels |= {f"part{n}": NodeLabel("failed") for n in range(0, 8_000, 1_000)}

    lines = [line.plain for line in draw_graph(FAN, labels, max_similar=4)]

    assert len(lines) == 7
    assert lines[5] == "╰─│─│─│─│─… 9,994 more: 9,990 succeeded, 4 failed"
    assert sum("✗" in line for line in lines) == 4


def test_graph_text_without_fold_limit_draws_every_job() -> None:
    lines = [line.plain for line in draw_graph(FAN, max_similar=None)]

    assert len(lines) == 10_000
    assert lines[2].strip() == "● part1  ← split"
    assert lines[-1].endswith("● merge  ← part0, part1, part2, part3, 9,994 more")


def test_graph_text_too_wide_graph_becomes_an_indented_list() -> None:
    wide = Graph({**{f"a{n}": [] for n in range(8)}, "b": ["a0", "a7"]})
    wide = Graph({**wide.predecessors, "end": [*(f"a{n}" for n in range(7)), "b"]})

    assert "●─┴─┴─┴─┴─┴─┴─╯ end" in [line.plain for line in draw_graph(wide, width=60)]
    lines = [line.plain for line in draw_graph(wide, width=28)]

    assert "● a0" in lines
    assert "  ● b  ← a0, a7" in lines
    assert "    ● end  ← a0, a1, a2, a3…" in lines


def test_graph_text_deep_list_indentation_is_limited() -> None:
    deep = {f"j{n}": [f"j{m}" for m in range(n)] for n in range(40)}

    *_, last = [line.plain for line in draw_graph(Graph(deep), width=60)]

    assert last == " " * 15 + "● j39  ← j0, j1, j2, j3, 35 more"


@settings(deadline=None, max_examples=50)
@given(graphs(), some.integers(1, 100), some.sampled_from(["utf-8", "ascii", "latin-1"]))
def test_graph_text_lines_fit_width_and_encoding(graph: Graph, width: int, encoding: str) -> None:
    words = "日本語 é " * 9
    labels = {name: NodeLabel("failed", words, words, name=words) for name in graph.order}

    for line in draw_graph(graph, labels, width=width, encoding=encoding):
        assert line.cell_len <= width
        line.plain.encode(encoding)


@settings(deadline=None, max_examples=50)
@given(graphs(), some.sampled_from([24, 40, 80, 160]))
def test_graph_text_every_job_is_below_its_predecessors(graph: Graph, width: int) -> None:
    lines = [line.plain for line in draw_graph(graph, width=width, max_similar=None)]

    at = {
        name: place
        for place, line in enumerate(lines)
        for name in re.findall(r"^[^j←]*(j\d+)", line)
    }
    assert set(at) == set(graph.order)
    assert len([line for line in lines if line]) == len(graph.order)
    for name in graph.order:
        assert all(at[parent] < at[name] for parent in graph.predecessors[name])


def test_graph_text_ascii_distinguishes_joined_and_crossing_rails() -> None:
    graph = Graph({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "…": ["d"], "é": ["d", "c"]})

    assert [line.plain for line in draw_graph(graph, encoding="ascii")] == [
        "* a",
        "+-* b",
        "'-|-* c",
        "*-'-+ d",
        "+---|--* ...",
        "*---' \\xe9",
    ]


def test_graph_text_every_state_has_its_own_mark() -> None:
    assert set(STATES) < STATE_MARKS.keys() == ASCII_STATE_MARKS.keys()
    assert len(set(STATE_MARKS.values())) == len(STATE_MARKS)
    assert {ASCII_STATE_MARKS[state] for state in STATES}.isdisjoint("+'|-:")
    assert all(mark.isascii() for mark in ASCII_STATE_MARKS.values())
    assert len({ASCII_STATE_MARKS[state] for state in STATES}) == len(STATES)


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2J", "[red]markup[/red]"])
def test_graph_text_names_are_escaped(name: str) -> None:
    [line] = draw_graph(Graph({name: []}), {name: NodeLabel("failed", name, name)})

    assert re.fullmatch(r"[^\x00-\x1f\x7f-\x9f]+", line.plain)
    assert name.replace("\n", " ").replace("\x1b", "\\x1b") in line.plain
