"""Graph of a run: laid out once for each shape, coloured for each rendering.

A run of two thousand jobs is drawn as a few hundred boxes at most (`rota.drawing.grouping`). A box that
represents many jobs can be expanded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rota.drawing.grouping import GroupedGraph, group
from rota.drawing.interactive_svg import (
    NodeDetails,
    Share,
    draw_edges,
    interactive_svg,
    layout_boxes,
)
from rota.drawing.label import STATES, Edge
from rota.drawing.layout import GraphLayout
from rota.model.graph import Graph
from rota.store.read.runs import FlowDetailRow, JobRow, RunDetailRow
from rota.web.dashboard.run.job import progress_fraction
from rota.web.dashboard.template_helpers import format_count, format_duration

MAX_SHAPES = 128
"""Size of each cache of shapes."""
PARENT_KEY = "caller"
"""Key of the box of the parent job, in a run that holds the calls of a job."""


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Layout of a graph, independent of job states. Jobs are numbers, in the order of the run."""

    grouped: GroupedGraph
    layout: GraphLayout
    edges_svg: str
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GraphPicture:
    shape: GraphShape
    details: Mapping[str, NodeDetails]
    members: Mapping[str, list[JobRow]]
    """Jobs of each box."""
    expanded: tuple[str, ...]

    def svg(self, title: str, chosen: str) -> str:
        shape = self.shape
        return interactive_svg(
            shape.layout, self.details, edges_svg=shape.edges_svg, title=title, selected=chosen
        )

    def states_json(self) -> str:
        """Return as JSON the details of each box that may change after drawing, for a script."""
        return json.dumps(
            [
                [
                    key,
                    node.state,
                    node.remark,
                    node.hint,
                    [[s, round(n, 4)] for s, n in node.shares],
                ]
                for key, node in self.details.items()
            ],
            ensure_ascii=False,
            separators=(",", ":"),
        )

    def key_of(self, job: int | None) -> str:
        """Return the box that shows a job, alone or in a group."""
        for key, jobs in self.members.items():
            if any(each.job == job for each in jobs):
                return key
        return ""


def build_picture(
    run: FlowDetailRow,
    jobs: Sequence[JobRow],
    parent_job: RunDetailRow | None = None,
    expanded: Sequence[str] = (),
) -> GraphPicture:
    names = [name_of(job, run) for job in jobs]
    query_prefix = f"open={'.'.join(expanded)}&" if expanded else ""
    found = _find_shape(run, jobs, names, tuple(expanded))
    by_number = {str(index): job for index, job in enumerate(jobs)}
    members: dict[str, list[JobRow]] = {}
    details: dict[str, NodeDetails] = {}
    for key in found.grouped.graph.order:
        if key == PARENT_KEY:
            members[key] = []
            details[key] = _parent_details(run, parent_job)
        elif key in found.grouped.members:
            members[key] = [by_number[each] for each in found.grouped.members[key]]
            details[key] = _group_details(key, found.names[key], members[key], query_prefix)
        else:
            members[key] = [by_number[key]]
            details[key] = _job_details(by_number[key], found.names[key], query_prefix)
    return GraphPicture(found, details, members, tuple(expanded))


def name_of(job: JobRow, run: FlowDetailRow) -> str:
    return job.task.removeprefix(f"{run.flow}.") if run.flow else job.task


# Shapes


_shapes_by_digest: OrderedDict[bytes, GraphShape] = OrderedDict()
_shapes_by_run: OrderedDict[object, GraphShape] = OrderedDict()
"""Shapes by run: the graph of a run never changes, and many runs have the same one."""


def _find_shape(
    run: FlowDetailRow, jobs: Sequence[JobRow], names: Sequence[str], expanded: tuple[str, ...]
) -> GraphShape:
    edges_of = tuple((job.job, tuple(job.successors), tuple(job.input_jobs)) for job in jobs)
    run_key = (run.flow, tuple(names), edges_of, expanded)
    found = _shapes_by_run.get(run_key)
    if found is None:
        number_of = {job.job: index for index, job in enumerate(jobs)}
        successors = [
            [number_of[successor] for successor in job.successors if successor in number_of]
            for job in jobs
        ]
        inputs = [[number_of[each] for each in job.input_jobs if each in number_of] for job in jobs]
        described = repr((bool(run.flow), list(names), successors, inputs, expanded)).encode()
        key = hashlib.blake2b(described, digest_size=16).digest()
        found = _shapes_by_digest.get(key) or _lay_out(run, names, successors, inputs, expanded)
        _remember(_shapes_by_digest, key, found)
    _remember(_shapes_by_run, run_key, found)
    return found


Key = TypeVar("Key")


def _remember(cache: OrderedDict[Key, GraphShape], key: Key, shape: GraphShape) -> None:
    cache[key] = shape
    cache.move_to_end(key)
    while len(cache) > MAX_SHAPES:
        cache.popitem(last=False)


def _lay_out(
    run: FlowDetailRow,
    names: Sequence[str],
    successors: Sequence[Sequence[int]],
    inputs: Sequence[Sequence[int]],
    expanded: tuple[str, ...],
) -> GraphShape:
    predecessors: dict[str, list[str]] = {str(index): [] for index in range(len(names))}
    after: set[Edge] = set()
    kinds = {str(index): _DIGITS.sub("*", name) for index, name in enumerate(names)}
    if run.flow:
        for job, following in enumerate(successors):
            for successor in following:
                predecessors[str(successor)].append(str(job))
                if job not in inputs[successor]:
                    after.add((str(job), str(successor)))
    else:
        # The jobs are calls of one parent job. Edges between them only reflect the concurrency limit.
        predecessors = {PARENT_KEY: [], **{key: [PARENT_KEY] for key in predecessors}}
        kinds[PARENT_KEY] = PARENT_KEY
    grouped = group(Graph(predecessors), kinds, after=after, expanded=expanded)
    labels: dict[str, str] = {}
    for key in grouped.graph.order:
        if key in grouped.members:
            labels[key] = _group_name([names[int(each)] for each in grouped.members[key]])
        else:  # the parent's name is not known here; reserve room for it
            labels[key] = "x" * 24 if key == PARENT_KEY else names[int(key)]
    layout = layout_boxes(grouped.graph, labels)
    return GraphShape(grouped, layout, draw_edges(layout, grouped.after), labels)


_DIGITS = re.compile("[0-9]+")


def _group_name(names: Sequence[str]) -> str:
    """Return the name of a group: the common name of its jobs, ignoring digits."""
    for found in (names, [_DIGITS.sub("*", each) for each in names]):
        different = list(dict.fromkeys(found))
        if len(different) == 1:
            return f"{different[0]} × {format_count(len(names))}"
    return f"{different[0]} and others × {format_count(len(names))}"


# Details of the boxes


def _job_details(job: JobRow, name: str, query_prefix: str) -> NodeDetails:
    texts = [job.state]
    if job.attempt > 1 and job.state not in ("skipped", "waiting"):
        texts.append(f"attempt {job.attempt}")
    elif job.state in ("succeeded", "failed") and job.seconds is not None:
        texts.append(format_duration(job.seconds))
    if job.state == "sleeping" and job.awaits:
        texts.append(f"for {', '.join(job.awaits)}")
    shares: list[Share] = []
    fraction = None if job.done is None else progress_fraction(job.done, job.total)
    if job.state in ("running", "sleeping") and fraction is not None:
        shares = [("running", fraction)]
        texts.append(f"{fraction:.0%}")
    href = f"?{query_prefix}job={job.job}"
    return NodeDetails(name, job.state, " · ".join(texts), f"job {job.job}", href, 1, shares)


def _group_details(key: str, name: str, jobs: Sequence[JobRow], query_prefix: str) -> NodeDetails:
    counts = count_states(jobs)
    texts = [f"{format_count(count)} {state}" for state, count in counts]
    text = ", ".join(texts)
    shares = [(state, count / len(jobs)) for state, count in counts]
    state = counts[0][0] if counts else ""
    short = text if len(counts) <= 2 else f"{texts[0]}, …"
    return NodeDetails(name, state, short, text, f"?{query_prefix}group={key}", len(jobs), shares)


def _parent_details(run: FlowDetailRow, parent_job: RunDetailRow | None) -> NodeDetails:
    if parent_job is None:
        return NodeDetails(f"job {run.parent}", remark="which is gone")
    return NodeDetails(
        parent_job.task, parent_job.state, f"{parent_job.state} · makes calls", "", str(run.parent)
    )


def count_states(jobs: Sequence[Any]) -> list[tuple[str, int]]:
    """Return the number of jobs by state, the most urgent state first."""
    counted = Counter(job.state for job in jobs)
    return [(state, counted[state]) for state in STATES if counted[state]]
