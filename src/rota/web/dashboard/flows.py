"""Flow and task pages: the graph, a form to start a run, and statistics.

Flows and tasks that only the database knows are shown too, without the form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from markupsafe import Markup
from msgspec import Meta

from rota.drawing import flow_inputs
from rota.drawing.flow_inputs import FlowInput
from rota.drawing.grouping import group
from rota.drawing.label import NodeLabel
from rota.drawing.svg import svg
from rota.errors import DefinitionError
from rota.model.flow import FlowDefinition, FlowPlan
from rota.model.task import TaskDefinition
from rota.operations.declare import OperationContext
from rota.operations.documents import Name
from rota.store.read import metrics
from rota.store.read.metrics import FlowHistoryRow, FlowTaskHistoryRow, TaskCounts
from rota.web.dashboard import charts
from rota.web.dashboard.charts import RangeName, RangeQuery
from rota.web.dashboard.router import Pages, PageView
from rota.web.dashboard.template_helpers import format_duration
from rota.web.responses import HttpError

pages = Pages()

MAX_LISTED = 200
"""Limit of flows, and of tasks, in a list."""

MAX_STATS_RUNS = 1000
"""Number of latest runs that the statistics of one flow cover."""

MAX_LISTED_RUNS = 15
"""Number of latest runs listed."""


class FlowsPageQuery(RangeQuery):
    find: Annotated[str, Meta(max_length=200)] = ""


@dataclass(frozen=True, slots=True)
class FlowSummary:
    name: str
    plan: FlowPlan | None
    error: str | None
    """Definition error of the flow, or None."""
    in_app: bool
    """True if the app registers the flow, False if only the database knows it."""
    past: FlowHistoryRow | None


@dataclass(frozen=True, slots=True)
class FlowTaskSummary:
    name: str
    task: TaskDefinition | None
    counts: TaskCounts | None


@pages.page("/flows", title="Flows")
async def flows(context: OperationContext, query: FlowsPageQuery) -> PageView:
    chart_range = await charts.choose_range(context, query.range, "24h")
    registry = context.app.registry
    recorded, counts = await context.read(
        metrics.flow_names(), metrics.task_counts(chart_range.minutes)
    )
    names, more_flows = _first_matches({*registry.flows, *recorded}, query.find)
    histories: list[FlowHistoryRow] = []
    if names:
        [histories] = await context.read(metrics.flow_history(names))
    past = {each.flow: each for each in histories}
    counts_by_task = {each.task: each for each in counts}
    standalone = _standalone_tasks(registry.tasks, counts_by_task, {*registry.flows, *recorded})
    tasks, more_tasks = _first_matches(standalone, query.find)
    return PageView(
        "flows.html",
        chart_range=chart_range,
        find=query.find,
        flows=[_flow_summary(name, registry.flows.get(name), past.get(name)) for name in names],
        more_flows=more_flows,
        tasks=[
            FlowTaskSummary(name, registry.tasks.get(name), counts_by_task.get(name))
            for name in tasks
        ],
        more_tasks=more_tasks,
        last=metrics.MAX_FLOW_RUNS,
        has_app=bool(registry.tasks),
        percent=charts.format_percent,
    )


@pages.page("/flows/{name:path}", title="Flow")
async def flow(context: OperationContext, name: Name, query: RangeQuery) -> PageView:
    registry = context.app.registry
    found = registry.flows.get(name)
    task = registry.tasks.get(name)
    if found is None and task is None:
        # It may belong to another app of the same database.
        [recorded] = await context.read(metrics.flow_history([name], 1))
        if not recorded:
            return await _task_view(context, name, None, query.range)
    elif task is not None:
        return await _task_view(context, name, task, query.range)
    return await _flow_view(context, name, found)


async def _flow_view(
    context: OperationContext, name: str, found: FlowDefinition | None
) -> PageView:
    size = len(found.nodes) if found is not None else 1
    histories, nodes, runs = await context.read(
        metrics.flow_history([name], MAX_STATS_RUNS),
        metrics.flow_task_history(name),
        metrics.flow_runs(name, MAX_LISTED_RUNS),
    )
    summary = _flow_summary(name, found, histories[0] if histories else None)
    past = {each.task: each for each in nodes}
    inputs = [] if summary.plan is None else flow_inputs.flow_inputs(summary.plan)
    return PageView(
        "flow.html",
        title=f"Flow {name}",
        flow=summary,
        # Drawing takes time, and the live parts of the page have no graph: draw only when it is rendered.
        picture=None if summary.plan is None else partial(draw_graph, summary.plan, past),
        nodes=_node_rows(name, summary.plan, past),
        inputs=inputs,
        example=example_input(inputs),
        startable=summary.plan is not None,
        runs=runs,
        sampled_runs=min(
            metrics.MAX_FLOW_RUNS,
            max(metrics.MAX_FLOW_JOBS // size, 1),
            len(histories) and histories[0].runs,
        ),
        percent=charts.format_percent,
    )


async def _task_view(
    context: OperationContext, name: str, task: TaskDefinition | None, range_name: RangeName | None
) -> PageView:
    chart_range = await charts.choose_range(context, range_name)
    counts, runs = await context.read(
        chart_range.counts(task=name), metrics.task_runs(name, MAX_LISTED_RUNS)
    )
    totals = charts.sum_counts(counts)
    if task is None and not runs and not totals.attempts:
        raise HttpError(404, "not_found", f"there is no flow or task {name!r:.60}")
    flow = _flow_of(context, name)
    inputs = [] if task is None or flow else flow_inputs.task_inputs(task)
    return PageView(
        "task.html",
        title=f"Task {name}",
        name=name,
        task=task,
        flow=flow,
        chart_range=chart_range,
        totals=totals,
        success_rate=charts.format_percent(totals.success_rate),
        throughput=charts.throughput(chart_range, counts),
        runtimes=charts.runtimes(chart_range, counts),
        waits=charts.waits(chart_range, counts),
        inputs=inputs,
        example=example_input(inputs),
        startable=task is not None and not flow,
        runs=runs,
        searched_jobs=metrics.MAX_SCAN_JOBS,
    )


def _flow_of(context: OperationContext, task: str) -> str | None:
    """Return the flow that a task is part of, or None."""
    name = task.rpartition(".")[0]
    return name if name in context.app.registry.flows else None


def _first_matches(names: Iterable[str], find: str) -> tuple[list[str], int]:
    """Return the first names that contain a text, and the number of further matches."""
    matching = sorted(name for name in names if find.lower() in name.lower())
    return matching[:MAX_LISTED], max(len(matching) - MAX_LISTED, 0)


def _standalone_tasks(
    tasks: Mapping[str, TaskDefinition], counts_by_task: Mapping[str, TaskCounts], flows: set[str]
) -> list[str]:
    """Return the tasks outside of flows; the name of a flow's task begins with the flow's name."""
    return [name for name in {*tasks, *counts_by_task} if name.rpartition(".")[0] not in flows]


def _flow_summary(
    name: str, flow: FlowDefinition | None, past: FlowHistoryRow | None
) -> FlowSummary:
    if flow is None:
        return FlowSummary(name, None, None, False, past)
    try:
        return FlowSummary(name, flow.plan, None, True, past)
    except DefinitionError as error:
        return FlowSummary(name, None, str(error), True, past)


def _node_rows(
    flow: str, plan: FlowPlan | None, past: Mapping[str, FlowTaskHistoryRow]
) -> list[dict[str, Any]]:
    """Return the tasks of a flow in plan order, or as the database knows them."""
    found: list[tuple[str, str, str | None]]
    if plan is None:
        found = [(task.removeprefix(f"{flow}."), task, None) for task in past]
    else:
        found = [(node.name, node.task.name, node.task.policy.queue) for node in plan.nodes]
    return [
        {"name": name, "task": task, "queue": queue, "past": past.get(task)}
        for name, task, queue in found[:MAX_LISTED]
    ]


# Graph


def draw_graph(plan: FlowPlan, past: Mapping[str, FlowTaskHistoryRow]) -> Markup:
    """Draw the graph of a flow as declared, with statistics of its tasks.

    Large graphs are grouped so that the layout takes a moment at most: some boxes then represent many
    tasks.
    """
    nodes = {node.name: node for node in plan.nodes}
    kinds = {name: node.task.policy.queue for name, node in nodes.items()}
    grouped = group(plan.graph, kinds, after=flow_inputs.order_only_edges(plan))
    labels: dict[str, NodeLabel] = {}
    for name in grouped.graph.order:
        if name in grouped.members:
            count = len(grouped.members[name])
            labels[name] = NodeLabel(name=f"{count:,} tasks", job_count=count)
        else:
            label, task = flow_inputs.node_label(plan, nodes[name]), nodes[name].task.name
            labels[name] = _with_stats(label, past.get(task))
    return Markup(svg(grouped.graph, labels, after=grouped.after, title=plan.name, style=False))


def _with_stats(label: NodeLabel, past: FlowTaskHistoryRow | None) -> NodeLabel:
    if past is None:
        return label
    rate = charts.format_percent(past.success_rate)
    stats = [
        *([label.detail] if label.detail else []),
        *([f"{rate} succeed"] if rate else []),
        *([format_duration(past.median_seconds)] if past.median_seconds is not None else []),
    ]
    return replace(label, detail=", ".join(stats))


# Input


_EMPTY: dict[str, Any] = {"str": "", "int": 0, "float": 0, "bool": False, "list": [], "dict": {}}


def example_input(inputs: Iterable[FlowInput]) -> str:
    """Return a JSON template with the required inputs."""
    given = {
        field.name: _EMPTY.get(field.kind.partition("[")[0]) for field in inputs if field.required
    }
    return json.dumps(given, indent=2, ensure_ascii=False)
