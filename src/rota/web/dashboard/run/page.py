"""Run page: graph, timeline and events of a run, and the details of one of its jobs.

The same page shows a run of a task, a run of a flow, the calls of a job, and a single job. The selected job
and the expanded boxes of the graph are part of the address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.drawing.gantt import GanttRow, gantt
from rota.engine.diagnosis.explain import explain
from rota.errors import RunNotFound
from rota.model.access import Role
from rota.model.explanation import Explanation
from rota.operations.declare import OperationContext
from rota.operations.documents import MAX_INT64, PathId
from rota.operations.run_detail import flow_result
from rota.store import audit, runs
from rota.store.read import job_detail, run_history
from rota.store.read import runs as read_runs
from rota.web.dashboard.router import Pages, PageView
from rota.web.dashboard.run import job as run_job
from rota.web.dashboard.run.events import DEFAULT_EVENTS, MAX_EVENTS, event_views
from rota.web.dashboard.run.gantt import (
    MAX_ROWS,
    queued_since,
    rounded_now,
    rows_of_job,
    rows_of_run,
)
from rota.web.dashboard.run.graph import GraphPicture, build_picture, count_states, name_of
from rota.web.dashboard.run.job import (
    MAX_CHILDREN,
    MAX_SIGNALS,
    JobView,
    editable_json,
    format_json,
)

pages = Pages()

MAX_GROUP_JOBS = 50
"""Limit of jobs listed for a box that represents many."""
MAX_AUDIT_ENTRIES = 50
OPEN_STATES = ("waiting", "queued", "sleeping", "running", "quarantined")


class RunPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    job: Annotated[int, Meta(ge=1, le=MAX_INT64)] | None = None
    """Selected job of the run."""
    group: Annotated[str, Meta(pattern="^[0-9]{1,6}~$")] | None = None
    """Selected box that represents many jobs."""
    open: Annotated[str, Meta(pattern=r"^[0-9]{1,6}~(\.[0-9]{1,6}~){0,19}$")] | None = None
    """Boxes whose jobs are drawn one by one."""
    events: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = DEFAULT_EVENTS


@dataclass(frozen=True, slots=True)
class TimelineView:
    """A timeline, drawn by the template."""

    rows: list[GanttRow]
    start: datetime
    end: datetime
    now: datetime | None

    def svg(self, chosen: str) -> str:
        return gantt(
            self.rows[:MAX_ROWS],
            self.start,
            self.end,
            now=self.now,
            selected=chosen,
            title="When each job waited, ran and slept",
        )

    @property
    def hidden_rows(self) -> int:
        return max(len(self.rows) - MAX_ROWS, 0)


@dataclass(frozen=True, kw_only=True)
class FlowRunView:
    """A run of a flow, or the run that holds the calls of a job."""

    run: read_runs.FlowDetailRow
    may_see_payloads: bool
    parent_job: read_runs.RunDetailRow | None
    """The job whose calls the run holds, if it does."""
    jobs: list[read_runs.JobRow]
    child_runs: list[read_runs.ChildRunRow]
    signals: list[job_detail.SignalRow]
    results: list[runs.JobResultRow]
    trace: str | None

    @property
    def children(self) -> list[read_runs.ChildRunRow]:
        return [each for each in self.child_runs if each.jobs]

    @cached_property
    def input(self) -> str | None:
        is_visible = self.may_see_payloads and self.run.flow
        return format_json(self.run.input) if is_visible else None

    @cached_property
    def result(self) -> str | None:
        if not self.may_see_payloads:
            return None
        return format_json(flow_result(self.run, self.results))

    @cached_property
    def failed_job(self) -> read_runs.JobRow | None:
        """The job that failed first, if one has failed with an error."""
        failed = [
            (each.finished, each)
            for each in self.jobs
            if each.state == "failed" and each.finished and each.error
        ]
        return min(failed, key=itemgetter(0))[1] if failed else None

    @property
    def error(self) -> bytes | None:
        failed = self.failed_job
        return failed.error if failed is not None and self.run.state == "failed" else None

    @property
    def counts(self) -> list[tuple[str, int]]:
        return count_states(self.jobs)

    @property
    def has_quarantined(self) -> bool:
        return any(each.state == "quarantined" for each in self.jobs)

    @property
    def fork_points(self) -> list[str]:
        """Tasks from which the run can be forked; none if it holds the calls of a job."""
        if not self.run.flow:
            return []
        return list(dict.fromkeys(name_of(each, self.run) for each in self.jobs))

    @property
    def awaited(self) -> list[str]:
        """Signals that jobs wait for."""
        return list(dict.fromkeys(name for job in self.jobs for name in job.awaits or ()))


@pages.page("/runs/{run}", title="Run")
async def run(context: OperationContext, run: PathId, query: RunPageQuery) -> PageView:
    flows, details, [now] = await context.read(
        read_runs.flow(run), read_runs.run(run), read_runs.database_time()
    )
    if flows:
        return await _flow_view(context, flows[0], query, now)
    if not details:
        raise RunNotFound(f"there is no run {run}; it may have been removed since it ended")
    return await _job_page(context, run, details[0], query, now)


async def _flow_view(
    context: OperationContext, flow: read_runs.FlowDetailRow, query: RunPageQuery, now: datetime
) -> PageView:
    may_see_payloads, id = context.may_see_payloads, flow.run
    parent = [] if flow.parent is None else [read_runs.run(flow.parent)]
    about_job: Sequence[Any] = ()
    if query.job is not None:
        about_job = run_job.job_queries(query.job, may_see_payloads=may_see_payloads)
    (
        events,
        audit_entries,
        jobs,
        attempts,
        children,
        signals,
        results,
        steps,
        traces,
        *rest,
    ) = await context.read(
        run_history.run_events(id, query.events + 1),
        audit.entries(_audit_limit(context), subject=str(id)),
        read_runs.jobs(id),
        read_runs.job_attempts(id, with_errors=False),
        read_runs.child_runs(id, MAX_CHILDREN + 1),
        job_detail.signals(id, MAX_SIGNALS),
        runs.results(id),
        run_history.run_steps(id),
        run_history.traceparent(id),
        *parent,
        *about_job,
    )
    parents = rest.pop(0) if parent else []
    flow_view = FlowRunView(
        run=flow,
        may_see_payloads=may_see_payloads,
        parent_job=parents[0] if parents else None,
        jobs=jobs,
        child_runs=children,
        signals=signals,
        results=results,
        trace=run_job.trace_id(traces),
    )
    expanded = query.open.split(".") if query.open else []
    picture = build_picture(flow, jobs, flow_view.parent_job, expanded)
    job_view: JobView | None = None
    if query.job is not None and any(each.job == query.job for each in jobs):
        job_view = run_job.build_job_view(
            query.job, rest, signals, may_see_payloads=may_see_payloads
        )
    subject = job_view.id if job_view is not None and not job_view.is_finished else id
    if flow.finished is None:
        now = rounded_now(flow.created, now, len(picture.members))
    bars = rows_of_run(picture, attempts, steps, queued_since(jobs, flow.created), now)
    return _page_view(
        context,
        id,
        query,
        events,
        audit_entries,
        {each.job: name_of(each, flow) for each in jobs},
        title=f"{flow.flow or 'calls'} #{id}",
        name=flow.flow or f"calls of job {flow.parent}",
        is_flow=True,
        status=flow.state,
        flow=flow_view,
        job_view=job_view,
        picture=picture,
        group=_group_view(picture, query),
        chosen=_chosen_box(picture, query),
        timeline=_timeline(bars, flow.created, flow.finished, now),
        explanation=await _explanation(context, subject, is_open=flow.state == "running"),
        explained_id=subject,
        has_quarantined=flow_view.has_quarantined,
        fork_points=flow_view.fork_points,
        startable_name=flow.flow if flow.flow in context.app.registry.flows else "",
        input=None if flow_view.input is None else editable_json(flow.input),
        awaited=flow_view.awaited,
    )


def _chosen_box(picture: GraphPicture, query: RunPageQuery) -> str:
    if query.group is not None and query.group in picture.members:
        return query.group
    return picture.key_of(query.job)


def _group_view(picture: GraphPicture, query: RunPageQuery) -> dict[str, Any] | None:
    """Return the jobs of a box that represents many, the most urgent first."""
    if query.group is None or query.group not in picture.shape.grouped.members:
        return None
    members = picture.members[query.group]
    order = {state: rank for rank, (state, _) in enumerate(count_states(members))}
    shown = sorted(members, key=lambda each: order[each.state])[:MAX_GROUP_JOBS]
    expanded = ".".join(dict.fromkeys((*picture.expanded, query.group)))
    return {
        "details": picture.details[query.group],
        "counts": count_states(members),
        "jobs": shown,
        "hidden_jobs": len(members) - len(shown),
        "open": expanded if len(expanded) <= 100 else query.group,
    }


def _timeline(
    rows: list[GanttRow], start: datetime, finished: datetime | None, now: datetime
) -> TimelineView:
    ends = [bar.end for row in rows for bar in row.bars]
    starts = [bar.start for row in rows for bar in row.bars]
    end = max([*ends, finished or now])
    current_time = None if finished is not None else now
    return TimelineView(rows, min([*starts, start]), end, current_time)


async def _job_page(
    context: OperationContext,
    id: int,
    job: read_runs.RunDetailRow,
    query: RunPageQuery,
    now: datetime,
) -> PageView:
    may_see_payloads = context.may_see_payloads
    found = await context.read(
        job_detail.signals(job.run, MAX_SIGNALS),
        run_history.run_events(id, query.events + 1),
        audit.entries(_audit_limit(context), subject=str(id)),
        read_runs.flow(job.run),
        *run_job.job_queries(id, may_see_payloads=may_see_payloads),
    )
    [signals, event_rows, audit_entries, flows, *answers] = found
    job_view = run_job.build_job_view(id, answers, signals, may_see_payloads=may_see_payloads)
    if job_view is None:
        raise RunNotFound(f"there is no run {id}; it may have been removed since it ended")
    job = job_view.job
    if job.finished is None:
        now = rounded_now(job.created, now, len(job_view.steps))
    rows = rows_of_job(id, job, job_view.past_attempts, job_view.run_steps, now)
    return _page_view(
        context,
        id,
        query,
        event_rows,
        audit_entries,
        {},
        title=f"{job.task} #{id}",
        name=job.task,
        is_flow=False,
        status=job.state,
        flow=None,
        parent_run=flows[0] if flows else None,
        job_view=job_view,
        group=None,
        chosen="",
        timeline=_timeline(rows, job.created, job.finished, now),
        explanation=await _explanation(context, id, is_open=job.state in OPEN_STATES),
        explained_id=id,
        has_quarantined=job.state == "quarantined",
        fork_points=[] if job_view.is_part else job_view.step_names,
        startable_name=job.task
        if not job_view.is_part and job.task in context.app.registry.tasks
        else "",
        input=editable_json(job.args) if may_see_payloads else None,
        awaited=job.awaits or [],
    )


def _audit_limit(context: OperationContext) -> int:
    """Return the number of audit entries to read: 0 unless the viewer may read the audit log."""
    return MAX_AUDIT_ENTRIES if context.caller.has_role(Role.ADMIN) else 0


def _page_view(
    context: OperationContext,
    id: int,
    query: RunPageQuery,
    event_rows: list[run_history.RunEventRow],
    audit_entries: list[audit.AuditRow],
    names: Mapping[int, str],
    **variables: Any,
) -> PageView:
    has_more_events = len(event_rows) > query.events and query.events < MAX_EVENTS
    return PageView(
        "run.html",
        id=id,
        query=query,
        command=f"rota show {id}",
        max_children=MAX_CHILDREN,
        events=event_views(
            event_rows,
            audit_entries,
            names,
            may_see_payloads=context.may_see_payloads,
            limit=query.events,
        ),
        more_events=MAX_EVENTS if has_more_events else 0,
        **variables,
    )


async def _explanation(context: OperationContext, id: int, *, is_open: bool) -> Explanation | None:
    if not is_open:
        return None
    found = await explain(context.read, id, context.app.settings)
    if found is None or found.status == "ended":
        return None
    return found if context.may_see_payloads else found.without_details()
