"""Layout: boxes do not overlap, edges never run behind a box, and work on large graphs is bounded."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.drawing import layout as layering
from rota.drawing.layout import (
    BOX_GAP,
    COMPONENT_GAP,
    RANK_GAP,
    Direction,
    GraphLayout,
    assign_layers,
    components,
    count_crossings,
    layout,
)
from rota.model.graph import Graph
from support.graphs import DIAMOND, chain, crossbar, fan, graphs, scattered

BLUR = 0.25
"""Tolerance: the layout rounds coordinates to a tenth."""

directions = some.sampled_from(["right", "down"])


def drawn(graph: Graph, direction: Direction = "right", *, uneven: bool = False) -> GraphLayout:
    sizes = {
        name: (60.0 + 17 * (place % 4) * uneven, 36.0 + 9 * (place % 3) * uneven)
        for place, name in enumerate(graph.order)
    }
    return layout(graph, sizes, direction)


def along(direction: Direction, point: tuple[float, float]) -> float:
    return point[0] if direction == "right" else point[1]


@given(graphs(), directions)
def test_layout_boxes_keep_minimum_gap(graph: Graph, direction: Direction) -> None:
    boxes = list(drawn(graph, direction, uneven=True).boxes.values())

    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            beside = max(one.x, other.x) - min(one.x + one.width, other.x + other.width)
            below = max(one.y, other.y) - min(one.y + one.height, other.y + other.height)
            assert max(beside, below) >= BOX_GAP - BLUR


@given(graphs(), directions)
def test_layout_boxes_have_requested_size_and_are_inside_picture(
    graph: Graph, direction: Direction
) -> None:
    sizes = {name: (50.0 + n % 3, 30.0 + n % 5) for n, name in enumerate(graph.order)}
    made = layout(graph, sizes, direction)

    assert list(made.boxes) == list(graph.order)
    for name, box in made.boxes.items():
        assert box.width >= sizes[name][0]
        assert box.height >= sizes[name][1]
        assert min(box.x, box.y) >= -BLUR
        assert box.x + box.width <= made.width + BLUR
        assert box.y + box.height <= made.height + BLUR


@given(graphs(), directions)
def test_layout_every_edge_is_routed_once_to_a_later_rank(
    graph: Graph, direction: Direction
) -> None:
    made = drawn(graph, direction)

    wanted = {(parent, name) for name in graph.order for parent in graph.predecessors[name]}
    assert sorted((route.predecessor, route.successor) for route in made.routes) == sorted(wanted)
    for route in made.routes:
        assert made.boxes[route.predecessor].rank < made.boxes[route.successor].rank
        steps = [along(direction, point) for point in route.points]
        assert all(one < other for one, other in pairwise(steps))


@given(graphs())
def test_layout_route_joins_facing_sides_of_both_boxes(graph: Graph) -> None:
    made = drawn(graph, uneven=True)

    for route in made.routes:
        one, other = made.boxes[route.predecessor], made.boxes[route.successor]
        assert route.points[0] == pytest.approx((one.x + one.width, one.y + one.height / 2))
        assert route.points[-1] == pytest.approx((other.x, other.y + other.height / 2))


@given(graphs())
def test_layout_no_route_runs_behind_a_box(graph: Graph) -> None:
    """An edge crosses a rank in a straight line between boxes, and turns only between ranks."""
    made = drawn(graph, uneven=True)

    for route in made.routes:
        for (x, y), (to_x, to_y) in pairwise(route.points):
            for box in made.boxes.values():
                if box.x < to_x - BLUR and x < box.x + box.width - BLUR:
                    assert y == to_y
                    assert not box.y - BLUR < y < box.y + box.height + BLUR


@given(graphs(), directions)
def test_layout_same_graph_is_deterministic(graph: Graph, direction: Direction) -> None:
    again = Graph(dict(graph.predecessors))

    assert drawn(graph, direction) == drawn(again, direction)


def test_layout_direction_down_is_transposed_right() -> None:
    sizes = {name: (40.0, 40.0) for name in DIAMOND.order}

    right, down = layout(DIAMOND, sizes, "right"), layout(DIAMOND, sizes, "down")

    assert (right.width, right.height) == (down.height, down.width)
    for name in DIAMOND.order:
        assert (right.boxes[name].x, right.boxes[name].y) == (
            down.boxes[name].y,
            down.boxes[name].x,
        )


def test_layout_diamond_is_symmetrical() -> None:
    boxes = drawn(DIAMOND).boxes

    assert boxes["a"].y == boxes["d"].y
    assert boxes["b"].y + boxes["c"].y == pytest.approx(2 * boxes["a"].y)
    assert (boxes["b"].rank, boxes["b"].index, boxes["c"].index) == (1, 0, 1)


def test_layout_chain_is_straight() -> None:
    boxes = drawn(chain(30), uneven=False).boxes

    assert len({box.y for box in boxes.values()}) == 1


def test_layout_long_edge_with_free_space_is_straight() -> None:
    around = Graph({**chain(9).predecessors, "x": ["j0"], "y": ["j8"], "end": ["y", "j8", "j0"]})

    made = drawn(around)

    [route] = [r for r in made.routes if (r.predecessor, r.successor) == ("j0", "end")]
    assert len({y for _, y in route.points[1:-1]}) == 1
    assert len({made.boxes[f"j{n}"].y for n in range(1, 9)}) == 1


def test_layout_root_needed_late_is_one_rank_before_its_successor() -> None:
    graph = Graph({**chain(6).predecessors, "late": [], "end": ["j5", "late"]})

    boxes = drawn(graph).boxes

    assert boxes["late"].rank == boxes["end"].rank - 1


def test_layout_components_are_separated_by_a_gap() -> None:
    graph = Graph({"a": [], "x": [], "b": ["a"], "y": ["x"], "c": ["a"], "z": ["x"]})

    boxes = drawn(graph).boxes

    assert components(graph) == [["a", "b", "c"], ["x", "y", "z"]]
    lowest = max(boxes[name].y + boxes[name].height for name in "abc")
    assert min(boxes[name].y for name in "xyz") >= lowest + COMPONENT_GAP - BLUR


def test_layout_tree_has_no_crossings() -> None:
    tree = Graph({f"j{n}": [f"j{(n * 7919) % n // 2}"] if n else [] for n in range(200)})

    [made] = assign_layers(tree)

    assert count_crossings(made) == 0


def test_layout_avoidable_crossing_is_removed() -> None:
    graph = Graph({"a": [], "b": [], "c": ["a"], "d": ["b", "c"], "e": ["a", "d"]})

    [made] = assign_layers(graph)

    assert count_crossings(made) == 0
    layering._initial_order(made)
    assert count_crossings(made) == 1


@given(graphs())
def test_layout_sweeps_never_add_crossings(graph: Graph) -> None:
    for part in assign_layers(graph):
        best = count_crossings(part)
        layering._initial_order(part)
        assert best <= count_crossings(part)


def test_layout_empty_graph_is_empty() -> None:
    assert drawn(Graph({})) == GraphLayout({}, (), 0.0, 0.0)


def test_layout_duplicate_predecessor_is_one_edge() -> None:
    graph = Graph({"a": [], "b": ["a", "a"], "c": ["b", "a", "a"]})

    [made] = assign_layers(graph)

    assert len(drawn(graph).routes) == 3
    assert all(len(set(joined)) == len(joined) for joined in made.below)


def test_layout_rank_gap_grows_with_edge_length() -> None:
    near, far = drawn(fan(2)).boxes, drawn(fan(40)).boxes

    assert near["part0"].x - near["split"].width == RANK_GAP
    assert far["part0"].x - far["split"].width > 2 * RANK_GAP


def test_layout_chain_beyond_recursion_limit_is_drawn() -> None:
    assert len(drawn(chain(2 * sys.getrecursionlimit())).boxes) == 2 * sys.getrecursionlimit()


def shortcuts(length: int) -> Graph:
    """Return a chain in which every job also waits for the first: 1,000 jobs need 500,000 waypoints."""
    parents = {name: list(before) for name, before in chain(length).predecessors.items()}
    for number in range(2, length):
        parents[f"j{number}"].append("j0")
    return Graph(parents)


@pytest.mark.parametrize(
    "graph",
    [
        fan(9_998),
        scattered(2_000),
        crossbar(20, 40),
        chain(3_000),
        shortcuts(1_000),
        Graph(dict.fromkeys(map(str, range(3_000)), ())),
    ],
    ids=["fan", "scattered", "crossbar", "chain", "shortcuts", "alone"],
)
def test_layout_large_graph_has_bounded_work(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count, not time, the work: waypoints created, and edges visited when the sweep budget is zero."""
    looked = 0
    counted = layering._mean_position

    def centre(joined: list[int], place: list[int], otherwise: int) -> float:
        nonlocal looked
        looked += len(joined)
        return counted(joined, place, otherwise)

    monkeypatch.setattr(layering, "_mean_position", centre)
    monkeypatch.setattr(layering, "MAX_SWEEP_EDGES", 0)
    found = assign_layers(graph)

    edges = sum(len(joined) for part in found for joined in part.below)
    assert looked <= 2 * edges
    assert sum(len(part.above) - len(part.names) for part in found) <= layering.MAX_WAYPOINTS
    assert (
        sum(len(knots) for part in found for knots in part.waypoints.values())
        <= layering.MAX_WAYPOINT_PASSES
    )


def test_layout_edges_beyond_waypoint_limit_are_drawn_directly() -> None:
    routes = drawn(shortcuts(1_000)).routes

    assert len(routes) == 999 + 998
    assert any(len(route.points) == 2 for route in routes if route.successor == "j999")
