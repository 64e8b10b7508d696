"""Picture of a flow on its page: with figures, and rendered quickly at any size."""

from __future__ import annotations

import math
import time

from rota import Rota
from rota.drawing.flow_inputs import FlowInput
from rota.store.read.metrics import FlowTaskHistoryRow
from rota.web.dashboard.flows import draw_graph, example_input
from support.scale import scale


async def empty_task(ctx: object = None) -> None: ...


def test_flow_graph_task_shows_its_history() -> None:
    app = Rota("postgresql://nowhere/nothing")
    flow = app.flow("etl")
    flow.task(empty_task, name="first")
    flow.task(empty_task, name="second", after=["first"], queue="heavy")
    past = {"etl.second": FlowTaskHistoryRow("etl.second", 10, 9, 1, 0, 1.25, 3.0)}

    drawn = draw_graph(app.registry.flows["etl"].plan, past)

    assert "queue heavy, 90% succeed, 1.25 s" in drawn
    assert drawn.count('class="job plain"') == 2
    assert "<style" not in drawn


def test_flow_graph_large_flow_is_drawn_within_a_second() -> None:
    app = Rota("postgresql://nowhere/nothing")
    flow = app.flow("wide")
    for number in range(2000):
        before = [f"n{number - 40}", f"n{(number // 40 - 1) * 40 + number * 7 % 40}"]
        after = list(dict.fromkeys(before)) if number >= 40 else []
        flow.task(empty_task, name=f"n{number}", after=after)
    plan = app.registry.flows["wide"].plan

    began = time.process_time()
    drawn = draw_graph(plan, {})

    assert time.process_time() - began < scale(math.inf, 1.0)
    assert 1 < drawn.count('class="job plain"') <= 250
    assert "2,000 jobs" in drawn


def test_example_input_contains_only_required_inputs() -> None:
    words = [
        FlowInput("day", "str", True, ""),
        FlowInput("limit", "int", False, "5"),
        FlowInput("parts", "list[int]", True, ""),
        FlowInput("how", "Thing", True, ""),
    ]

    assert example_input(words) == '{\n  "day": "",\n  "parts": [],\n  "how": null\n}'
