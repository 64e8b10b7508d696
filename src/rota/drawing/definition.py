"""What a flow or a task takes, and what is said of a flow's tasks where it is drawn as it is written."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.drawing.label import Edge, Label
from rota.model.fits import said
from rota.model.flow import Node, Plan
from rota.model.task import Definition

NODES = "rota.app.nodes"
"""Where the code of nodes is that only wait."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of an input: its type, whether it must be given, and what it is if it is not."""

    name: str
    kind: str
    required: bool
    default: str

    def __str__(self) -> str:
        """As a function would have it: `limit: int = 10`."""
        return f"{self.name}: {self.kind}" + ("" if self.required else f" = {self.default}")


def flow_input(plan: Plan) -> list[Word]:
    """What a run takes. Where several tasks take a word, it must be right for all of them."""
    takers: dict[str, list[Definition]] = {}
    for node in plan.nodes:
        for word, tasks in node.words.items():
            if word in plan.inputs:
                takers.setdefault(word, []).extend(tasks)
    return _words(takers)


def task_input(task: Definition) -> list[Word]:
    return _words({word: [task] for word in task.parameters})


def _words(takers: Mapping[str, Sequence[Definition]]) -> list[Word]:
    return [_word(name, tasks) for name, tasks in takers.items()]


def _word(name: str, takers: Iterable[Definition]) -> Word:
    kinds: list[str] = []
    defaults: list[Any] = []
    for task in takers:
        kinds.append(said(task.hint(name)).replace("typing.", ""))
        defaults.append(task.parameters[name].default)
    return Word(
        name,
        " and ".join(dict.fromkeys(kind for kind in kinds if kind != "Any")) or "Any",
        inspect.Parameter.empty in defaults,
        " or ".join(dict.fromkeys(map(repr, defaults))),
    )


def only_before(plan: Plan, node: Node) -> list[str]:
    """Those it waits for without taking their results."""
    taken = plan.taken(node)
    return [name for name in plan.graph.parents[node.name] if name not in taken]


def order_only(plan: Plan) -> set[Edge]:
    """Edges that carry order and no result."""
    return {(parent, node.name) for node in plan.nodes for parent in only_before(plan, node)}


def label(plan: Plan, node: Node, *, text: bool = False) -> Label:
    """What its place in the graph does not say. Text has no dashes: where a task takes results of some it
    waits for, it names the others."""
    words: list[str] = []
    if node.task.fn.__module__ == NODES:
        words.append(_rest(node))
    if node.last:
        words.append("on failure")
    elif node.when != "all_succeeded":
        words.append(f"when {node.when}")
    if node.skip_if is not None:
        words.append("skip_if")
    if node.task.policy.queue != "default":
        words.append(f"queue {node.task.policy.queue}")
    after = only_before(plan, node)
    if text and after and plan.taken(node):
        more = f", {len(after) - 3} more" if len(after) > 3 else ""
        words.append(f"after {', '.join(after[:3])}{more}")
    return Label(detail=", ".join(words))


def _rest(node: Node) -> str:
    """What a node does that only waits: `sleeps for 30 days`."""
    said = (node.task.fn.__doc__ or "").rstrip(".").removesuffix(", 0:00:00")
    return said[:1].lower() + said[1:]
