"""Parameters of a flow or a task, as shown before a start."""

from __future__ import annotations

from typing import Any

from rota import Context, Flow, Rota
from rota.drawing.flow_inputs import (
    flow_inputs,
    node_label,
    order_only_edges,
    order_only_predecessors,
    task_inputs,
)


def test_task_inputs_list_parameters_without_context(app: Rota) -> None:
    @app.task
    async def send(ctx: Context, to: str, copies: int = 1, more: Any = None) -> None: ...

    words = task_inputs(app.registry.tasks["send"])

    assert [str(word) for word in words] == ["to: str", "copies: int = 1", "more: Any = None"]
    assert [word.required for word in words] == [True, False, False]


def test_flow_inputs_list_parameters_without_task_results(app: Rota, flow: Flow) -> None:
    @flow.task
    async def extract(day: str) -> int:
        return len(day)

    @flow.task(queue="heavy")
    async def load(extract: int, day: str | None = None, limit: int = 5) -> None: ...

    @flow.task(after=[load])
    async def tell() -> None: ...

    plan = app.registry.flows["etl"].plan
    day, limit = flow_inputs(plan)
    assert (day.name, day.required) == ("day", True)
    assert (str(limit), limit.required) == ("limit: int = 5", False)
    told, loaded = plan.nodes[-1], plan.nodes[1]
    assert order_only_predecessors(plan, told) == ["load"]
    assert order_only_edges(plan) == {("load", "tell")}
    assert node_label(plan, loaded).detail == "queue heavy"
