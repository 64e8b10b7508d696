"""Inputs of a flow or a task, and the labels of a flow's tasks in a drawing of its definition."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.drawing.label import Edge, NodeLabel
from rota.model.flow import FlowNode, FlowPlan
from rota.model.task import TaskDefinition
from rota.model.type_match import format_type

WAIT_NODES_MODULE = "rota.app.flow"
"""Module that defines nodes that only wait."""


@dataclass(frozen=True, slots=True)
class FlowInput:
    """Parameter of an input: its type, whether it is required, and its default."""

    name: str
    kind: str
    required: bool
    default: str

    def __str__(self) -> str:
        """Return the parameter as in a signature: `limit: int = 10`."""
        return f"{self.name}: {self.kind}" + ("" if self.required else f" = {self.default}")


def flow_inputs(plan: FlowPlan) -> list[FlowInput]:
    """Return the parameters of a run. A value that several tasks take must be valid for all of them."""
    consumers: dict[str, list[TaskDefinition]] = {}
    for node in plan.nodes:
        for name, tasks in node.parameters.items():
            if name in plan.inputs:
                consumers.setdefault(name, []).extend(tasks)
    return _inputs(consumers)


def task_inputs(task: TaskDefinition) -> list[FlowInput]:
    return _inputs({name: [task] for name in task.parameters})


def _inputs(consumers: Mapping[str, Sequence[TaskDefinition]]) -> list[FlowInput]:
    return [_input(name, tasks) for name, tasks in consumers.items()]


def _input(name: str, consumers: Iterable[TaskDefinition]) -> FlowInput:
    kinds: list[str] = []
    defaults: list[Any] = []
    for task in consumers:
        kinds.append(format_type(task.hint(name)).replace("typing.", ""))
        defaults.append(task.parameters[name].default)
    return FlowInput(
        name,
        " and ".join(dict.fromkeys(kind for kind in kinds if kind != "Any")) or "Any",
        inspect.Parameter.empty in defaults,
        " or ".join(dict.fromkeys(map(repr, defaults))),
    )


def order_only_predecessors(plan: FlowPlan, node: FlowNode) -> list[str]:
    """Return the predecessors whose results the node does not take."""
    result_parameters = plan.result_parameters(node)
    return [name for name in plan.graph.predecessors[node.name] if name not in result_parameters]


def order_only_edges(plan: FlowPlan) -> set[Edge]:
    """Return the edges that carry order but no result."""
    return {
        (predecessor, node.name)
        for node in plan.nodes
        for predecessor in order_only_predecessors(plan, node)
    }


def node_label(plan: FlowPlan, node: FlowNode, *, text: bool = False) -> NodeLabel:
    """Return the properties of a node that its position does not show.

    A text drawing (`text=True`) has no dashed edges. If a task takes results of some predecessors only, the
    label of a text drawing names the rest.
    """
    details: list[str] = []
    if node.task.fn.__module__ == WAIT_NODES_MODULE:
        details.append(_describe_wait(node))
    if node.is_on_failure:
        details.append("on failure")
    elif node.when != "all_succeeded":
        details.append(f"when {node.when}")
    if node.skip_if is not None:
        details.append("skip_if")
    if node.task.policy.queue != "default":
        details.append(f"queue {node.task.policy.queue}")
    after = order_only_predecessors(plan, node)
    if text and after and plan.result_parameters(node):
        more = f", {len(after) - 3} more" if len(after) > 3 else ""
        details.append(f"after {', '.join(after[:3])}{more}")
    return NodeLabel(detail=", ".join(details))


def _describe_wait(node: FlowNode) -> str:
    """Return a description of a node that only waits: `sleeps for 30 days`."""
    text = (node.task.fn.__doc__ or "").rstrip(".").removesuffix(", 0:00:00")
    return text[:1].lower() + text[1:]
