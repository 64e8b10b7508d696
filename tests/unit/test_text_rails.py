"""Text rails: following the strokes of a drawing gives exactly the edges of its graph."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.drawing.text_rails import NODE, RailRow, text_rails
from rota.model.graph import Graph
from support.graphs import DIAMOND, chain, crossbar, fan, graphs

ROOM = 10_000
UP, DOWN, LEFT, RIGHT = "│├┤┼╰╯┴", "│├┤┼", "─┤┼╯┴", "─├┼╰┴"


def trace_edges(rungs: list[RailRow]) -> dict[str, set[str]]:
    """Return the predecessors of each job, read from the strokes alone."""
    found: dict[str, set[str]] = {}
    open_rails: dict[int, str] = {}
    fresh = -1  # column of the previous line's job
    for rung in rungs:
        if rung.is_first:
            assert set(open_rails) <= {fresh}, "a rail ends nowhere"
            open_rails = {}
        line = rung.rails
        at = line.index(NODE)
        parents = {open_rails[at]} if at in open_rails else set()
        for step in (-1, 1):
            place = at + step
            while 0 <= place < len(line) and line[place] in "─│┼┴├┤╰╯":
                stroke = line[place]
                if stroke == "│" and place % 2 == 0:
                    beyond = place + step
                    if line[place - step] != "─" or not 0 <= beyond < len(line):
                        break
                    if line[beyond] != "─":
                        break
                elif stroke != "─":
                    if line[place - step] != "─":
                        break
                    parents.add(open_rails[place])
                    if stroke in ("├╰" if step < 0 else "┤╯"):
                        break
                place += step
        found[rung.name] = parents

        going = {}
        for column, owner in open_rails.items():
            stroke = line[column] if column < len(line) else " "
            if stroke in DOWN:
                going[column] = owner
            elif column != at and stroke not in UP:
                assert column == fresh, f"the rail of {owner} is cut off"
        going = {column: owner for column, owner in going.items() if column != at}
        if at % 2 == 0:
            going[at] = rung.name
        for column, stroke in enumerate(line):
            assert stroke not in UP or column in open_rails, "a rail comes from nowhere"
        open_rails, fresh = going, at
    return found


@given(graphs(), some.booleans())
def test_rails_strokes_give_exactly_the_graph_edges(graph: Graph, tight: bool) -> None:
    rungs = text_rails(graph, ROOM, compact=tight)

    assert rungs is not None
    assert trace_edges(rungs) == {name: set(graph.predecessors[name]) for name in graph.order}


@given(graphs(), some.booleans())
def test_rails_every_job_is_once_and_below_its_predecessors(graph: Graph, tight: bool) -> None:
    names = [rung.name for rung in text_rails(graph, ROOM, compact=tight) or []]

    assert sorted(names) == sorted(graph.order)
    for name in names:
        assert all(names.index(parent) < names.index(name) for parent in graph.predecessors[name])


@given(graphs(), some.booleans(), some.integers(1, 20))
def test_rails_wider_than_limit_are_not_drawn(graph: Graph, tight: bool, widest: int) -> None:
    rungs = text_rails(graph, widest, compact=tight)

    wide = max(
        (len(rung.rails) for rung in text_rails(graph, ROOM, compact=tight) or []), default=0
    )
    assert (rungs is None) == (wide > widest)


def picture(graph: Graph, *, tight: bool = False) -> list[str]:
    rungs = text_rails(graph, ROOM, compact=tight)
    assert rungs is not None
    return [f"{rung.rails} {rung.name}" for rung in rungs]


def test_rails_chain_stays_in_one_column() -> None:
    assert picture(chain(3)) == ["● j0", "● j1", "● j2"]


def test_rails_diamond_opens_and_closes() -> None:
    assert picture(DIAMOND) == ["● a", "├─● b", "╰─│─● c", "●─┴─╯ d"]
    assert picture(DIAMOND, tight=True) == ["● a", "├─● b", "● │ c", "●─╯ d"]


def test_rails_crossing_is_drawn_unjoined() -> None:
    assert picture(crossbar(2, 2)) == [
        "● j0.0",
        "│ ● j0.1",
        "├─┼──● j1.0",
        "●─╯ j1.1",
    ]
    assert picture(fan(3)) == [
        "● split",
        "├─● part0",
        "├─│─● part1",
        "╰─│─│─● part2",
        "●─┴─┴─╯ merge",
    ]


def test_rails_job_without_successors_is_beside_columns() -> None:
    tree = Graph({"a": [], "b": ["a"], "c": ["a"], "d": ["c"], "e": ["c"]})

    assert picture(tree) == ["● a", "├──● b", "╰─● c", "  ├──● d", "  ╰──● e"]


@pytest.mark.parametrize("tight", [False, True])
def test_rails_column_below_job_without_successors_stays_free(tight: bool) -> None:
    """A job directly below would appear to be a successor."""
    graph = Graph({"a": [], "x": [], "end": ["a"], "b": [], "last": ["x", "b"], "end2": ["a", "x"]})

    rungs = text_rails(graph, ROOM, compact=tight)

    assert rungs is not None
    assert trace_edges(rungs) == {name: set(graph.predecessors[name]) for name in graph.order}


def test_rails_components_are_drawn_in_sequence() -> None:
    graph = Graph({"a": [], "x": [], "b": ["a"], "y": ["x"]})

    rungs = text_rails(graph, ROOM)

    assert [(rung.name, rung.is_first) for rung in rungs or []] == [
        ("a", True),
        ("b", False),
        ("x", True),
        ("y", False),
    ]


def test_rails_branch_is_finished_before_the_next_begins() -> None:
    """In parallel, each branch would need a rail of its own."""
    lanes = {f"{stage}{n}": [f"{before}{n}"] for n in range(50) for before, stage in ("ab", "bc")}
    graph = Graph({"go": [], **{f"a{n}": ["go"] for n in range(50)}, **lanes})

    rungs = text_rails(graph, 5)

    assert rungs is not None


def test_rails_chain_beyond_recursion_limit_is_drawn() -> None:
    assert len(picture(chain(2 * sys.getrecursionlimit()))) == 2 * sys.getrecursionlimit()
