"""Flows and tasks: as the app has them, drawn and ready to be started, and how they have done. What only
the database knows of is shown, too, without what it would take to start it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import msgspec
from markupsafe import Markup
from msgspec import Meta

from rota.drawing import definition
from rota.drawing.crowd import crowd
from rota.drawing.definition import Word
from rota.drawing.label import Label
from rota.drawing.svg import svg
from rota.errors import DefinitionError
from rota.model.flow import FlowDefinition, Plan
from rota.model.task import Definition
from rota.store import history
from rota.store.history import FlowPast, NodePast, TaskCounts
from rota.web.answers import Refused
from rota.web.api.operations import Desk
from rota.web.dashboard import plots
from rota.web.dashboard.pages import Pages, View
from rota.web.dashboard.plots import SPANS, Within
from rota.web.dashboard.shown import span

table = Pages()

MOST = 200
"""Flows, and tasks, that are listed at once."""

LAST = 1000
"""Runs that the figures of one flow are of."""

RUNS = 15
"""The last ones that are listed."""

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class FlowsQuery(msgspec.Struct, forbid_unknown_fields=True):
    within: Within | None = None
    find: Annotated[str, Meta(max_length=200)] = ""


class FlowQuery(msgspec.Struct, forbid_unknown_fields=True):
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class FlowLine:
    name: str
    plan: Plan | None
    error: str | None
    """Why it cannot work."""
    known: bool
    """Whether the app has it, or the database alone."""
    past: FlowPast | None


@dataclass(frozen=True, slots=True)
class TaskLine:
    name: str
    task: Definition | None
    counts: TaskCounts | None


@table.page("/flows", title="Flows")
async def flows(desk: Desk, query: FlowsQuery) -> View:
    within = await plots.looking_back(desk, query.within, "24h")
    registry = desk.app.registry
    ran, counts = await desk.ask(history.flow_names(), history.tasks(within.minutes))
    names, more_flows = _page({*registry.flows, *ran}, query.find)
    pasts: list[FlowPast] = []
    if names:
        [pasts] = await desk.ask(history.flows(names))
    past = {each.flow: each for each in pasts}
    counted = {each.task: each for each in counts}
    own = _lone(registry.tasks, counted, {*registry.flows, *ran})
    tasks, more_tasks = _page(own, query.find)
    return View(
        "flows.html",
        within=within,
        spans=list(SPANS.values()),
        find=query.find,
        flows=[_flow_line(name, registry.flows.get(name), past.get(name)) for name in names],
        more_flows=more_flows,
        tasks=[TaskLine(name, registry.tasks.get(name), counted.get(name)) for name in tasks],
        more_tasks=more_tasks,
        last=history.RUNS,
        has_app=bool(registry.tasks),
        percent=plots.percent,
    )


@table.page("/flows/{name:path}", title="Flow")
async def flow(desk: Desk, name: Name, query: FlowQuery) -> View:
    registry = desk.app.registry
    found = registry.flows.get(name)
    task = registry.tasks.get(name)
    if found is None and task is None:
        # Perhaps another app's, of the same database.
        [ran] = await desk.ask(history.flows([name], 1))
        if not ran:
            return await _task(desk, name, None, query.within)
    elif task is not None:
        return await _task(desk, name, task, query.within)
    return await _flow(desk, name, found)


async def _flow(desk: Desk, name: str, found: FlowDefinition | None) -> View:
    size = len(found.nodes) if found is not None else 1
    pasts, nodes, runs = await desk.ask(
        history.flows([name], LAST), history.nodes(name), history.flow_runs(name, RUNS)
    )
    line = _flow_line(name, found, pasts[0] if pasts else None)
    past = {each.task: each for each in nodes}
    takes = [] if line.plan is None else definition.flow_input(line.plan)
    return View(
        "flow.html",
        title=f"Flow {name}",
        flow=line,
        # Where it is rendered: what is live of the page has none, and it takes time.
        picture=None if line.plan is None else partial(picture, line.plan, past),
        nodes=_nodes(name, line.plan, past),
        takes=takes,
        example=example(takes),
        startable=line.plan is not None,
        runs=runs,
        of=min(history.RUNS, max(history.JOBS // size, 1), len(pasts) and pasts[0].runs),
        percent=plots.percent,
    )


async def _task(desk: Desk, name: str, task: Definition | None, back: Within | None) -> View:
    within = await plots.looking_back(desk, back)
    counts, runs = await desk.ask(within.counts(task=name), history.task_runs(name, RUNS))
    sums = plots.total(counts)
    if task is None and not runs and not sums.attempts:
        raise Refused(404, "not_found", f"nothing is known of a flow or a task {name!r:.60}")
    flow = _flow_of(desk, name)
    takes = [] if task is None or flow else definition.task_input(task)
    return View(
        "task.html",
        title=f"Task {name}",
        name=name,
        task=task,
        flow=flow,
        within=within,
        spans=list(SPANS.values()),
        sums=sums,
        rate=plots.percent(sums.rate),
        throughput=plots.throughput(within, counts),
        runtimes=plots.runtimes(within, counts),
        waits=plots.waits(within, counts),
        takes=takes,
        example=example(takes),
        startable=task is not None and not flow,
        runs=runs,
        among=history.AMONG,
    )


def _flow_of(desk: Desk, task: str) -> str | None:
    """The flow that a task is part of."""
    name = task.rpartition(".")[0]
    return name if name in desk.app.registry.flows else None


def _page(names: Iterable[str], find: str) -> tuple[list[str], int]:
    """Those in which a text is found, the first ones, and how many more there are."""
    wanted = sorted(name for name in names if find.lower() in name.lower())
    return wanted[:MOST], max(len(wanted) - MOST, 0)


def _lone(
    tasks: Mapping[str, Definition], counted: Mapping[str, TaskCounts], flows: set[str]
) -> list[str]:
    """Tasks that are not a flow's: those are called after it."""
    return [name for name in {*tasks, *counted} if name.rpartition(".")[0] not in flows]


def _flow_line(name: str, flow: FlowDefinition | None, past: FlowPast | None) -> FlowLine:
    if flow is None:
        return FlowLine(name, None, None, False, past)
    try:
        return FlowLine(name, flow.plan, None, True, past)
    except DefinitionError as error:
        return FlowLine(name, None, str(error), True, past)


def _nodes(flow: str, plan: Plan | None, past: Mapping[str, NodePast]) -> list[dict[str, Any]]:
    """Its tasks in the order of the plan, or as the database knows them."""
    if plan is None:
        return [
            {"name": task.removeprefix(f"{flow}."), "task": task, "queue": None, "past": each}
            for task, each in past.items()
        ][:MOST]
    return [
        {
            "name": node.name,
            "task": node.task.name,
            "queue": node.task.policy.queue,
            "past": past.get(node.task.name),
        }
        for node in plan.nodes[:MOST]
    ]


# Pictures


def picture(plan: Plan, past: Mapping[str, NodePast]) -> Markup:
    """As it is written, with how its tasks have done. However large it is, no more is drawn than can be
    laid out in a moment: some boxes then stand for many tasks."""
    nodes = {node.name: node for node in plan.nodes}
    kinds = {name: node.task.policy.queue for name, node in nodes.items()}
    shown = crowd(plan.graph, kinds, after=definition.order_only(plan))
    labels: dict[str, Label] = {}
    for name in shown.graph.order:
        if name in shown.folds:
            many = len(shown.folds[name])
            labels[name] = Label(name=f"{many:,} tasks", many=many)
        else:
            label, task = definition.label(plan, nodes[name]), nodes[name].task.name
            labels[name] = _with_figures(label, past.get(task))
    return Markup(svg(shown.graph, labels, after=shown.after, title=plan.name, style=False))


def _with_figures(label: Label, past: NodePast | None) -> Label:
    if past is None:
        return label
    rate = plots.percent(past.rate)
    figures = [
        *([label.detail] if label.detail else []),
        *([f"{rate} succeed"] if rate else []),
        *([span(past.median)] if past.median is not None else []),
    ]
    return replace(label, detail=", ".join(figures))


# What is given


_EMPTY: dict[str, Any] = {"str": "", "int": 0, "float": 0, "bool": False, "list": [], "dict": {}}


def example(takes: Iterable[Word]) -> str:
    """An input with what must be given, to be filled in."""
    given = {word.name: _EMPTY.get(word.kind.partition("[")[0]) for word in takes if word.required}
    return json.dumps(given, indent=2, ensure_ascii=False)
