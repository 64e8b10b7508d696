"""A run: its graph, its timeline and what happened, side by side; and all there is to say about one of its
jobs.

The same page shows a run of a task, a flow's, the calls that a job has made, and a job of one of those.
Which job is looked at, and which boxes of the graph are opened, stands in its address.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.drawing.gantt import Row, gantt
from rota.engine.why import explain
from rota.errors import RunNotFound
from rota.model.access import Role
from rota.model.why import Why
from rota.store import audit, chronicle, runs, timeline, views
from rota.web.api.operations import Desk
from rota.web.api.shapes import LARGEST, Failure, Number, failure
from rota.web.dashboard import run_job
from rota.web.dashboard.pages import Pages, View
from rota.web.dashboard.run_events import MOST, SHOWN, Event, events
from rota.web.dashboard.run_gantt import ROWS, ready_since, rows_of_job, rows_of_run, until_now
from rota.web.dashboard.run_graph import Picture, counts, name_of, picture
from rota.web.dashboard.run_job import CALLED, SIGNALS, Said, Sheet, editable, pretty

table = Pages()

LISTED = 50
"""Jobs that are listed of a box that stands for many."""
DEEDS = 50
OPEN = ("waiting", "ready", "asleep", "running", "quarantined")


class RunQuery(msgspec.Struct, forbid_unknown_fields=True):
    job: Annotated[int, Meta(ge=1, le=LARGEST)] | None = None
    """Of the run: which is looked at."""
    group: Annotated[str, Meta(pattern="^[0-9]{1,6}~$")] | None = None
    """A box that stands for many, which is looked at."""
    open: Annotated[str, Meta(pattern=r"^[0-9]{1,6}~(\.[0-9]{1,6}~){0,19}$")] | None = None
    """Boxes whose jobs are drawn one by one."""
    events: Annotated[int, Meta(ge=1, le=MOST)] = SHOWN


@dataclass(frozen=True, slots=True)
class Timeline:
    """Drawn where it is shown."""

    rows: list[Row]
    start: datetime
    end: datetime
    now: datetime | None
    title: str

    def svg(self, chosen: str) -> str:
        return gantt(
            self.rows[:ROWS], self.start, self.end, now=self.now, chosen=chosen, title=self.title
        )

    @property
    def left_out(self) -> int:
        return max(len(self.rows) - ROWS, 0)


@dataclass(frozen=True, slots=True)
class Flow:
    """A run of a flow, or of calls."""

    run: views.FlowDetail
    jobs: list[views.JobLine]
    caller: views.RunDetail | None
    picture: Picture
    timeline: Timeline
    called: list[views.CalledLine]
    signals: list[Said]
    error: Failure | None
    failed: views.JobLine | None
    """The first job that did."""
    trace: str | None
    input: str | None
    result: str | None

    @property
    def counts(self) -> list[tuple[str, int]]:
        return counts(self.jobs)

    @property
    def tasks(self) -> list[str]:
        """To fork from."""
        return list(dict.fromkeys(name_of(each, self.run) for each in self.jobs))

    @property
    def awaited(self) -> list[str]:
        """Signals that somebody waits for."""
        return list(dict.fromkeys(name for job in self.jobs for name in job.awaits or ()))


@table.page("/runs/{run}", title="Run")
async def run(desk: Desk, run: Number, query: RunQuery) -> View:
    flows, details, [now] = await desk.ask(views.flow(run), views.run(run), views.clock())
    if flows:
        return await _flow(desk, flows[0], query, now)
    if not details:
        raise RunNotFound(f"there is no run {run}; it may have been removed since it ended")
    return await _job(desk, run, details[0], query, now)


async def _flow(desk: Desk, flow: views.FlowDetail, query: RunQuery, now: datetime) -> View:
    shows, id = desk.shows, flow.run
    found = await desk.ask(
        views.jobs(id),
        views.tries(id, errors=False),
        views.called(id, CALLED + 1),
        timeline.signals(id, SIGNALS),
        runs.results(id),
        chronicle.doings(id),
        chronicle.trace(id),
        chronicle.chronicle(id, query.events + 1),
        audit.entries(_deeds(desk), subject=str(id)),
        *([] if flow.parent is None else [views.run(flow.parent)]),
        *([] if query.job is None else run_job.asked(query.job, shows=shows)),
    )
    [jobs, tries, called, signals, results, doings, traces, happened, deeds, *rest] = found
    caller = rest.pop(0) if flow.parent is not None else []
    opened = query.open.split(".") if query.open else []
    drawn = picture(flow, jobs, caller[0] if caller else None, opened)
    chosen = _chosen(drawn, query)
    pane: Sheet | None = None
    if query.job is not None and any(each.job == query.job for each in jobs):
        pane = run_job.sheet(query.job, rest, signals, shows=shows)
    failed = min(
        (each for each in jobs if each.state == "failed" and each.finished and each.error),
        key=lambda each: each.finished or now,
        default=None,
    )
    whole = Flow(
        flow,
        jobs,
        caller[0] if caller else None,
        drawn,
        _timeline_of_run(flow, drawn, jobs, tries, doings, now),
        [each for each in called if each.jobs],
        run_job.said(signals, shows=shows),
        failure(failed.error, shown=shows) if failed and flow.state == "failed" else None,
        failed,
        run_job.trace_id(traces),
        pretty(flow.input) if shows and flow.flow else None,
        _result(flow, results) if shows else None,
    )
    names = {each.job: name_of(each, flow) for each in jobs}
    subject = pane.id if pane is not None and not pane.is_over else id
    return View(
        "run.html",
        title=f"{flow.flow or 'calls'} #{id}",
        id=id,
        name=flow.flow or f"calls of job {flow.parent}",
        is_flow=True,
        status=flow.state,
        flow=whole,
        sheet=pane,
        group=_group(drawn, query),
        chosen=chosen,
        query=query,
        why=await _why(desk, subject, is_open=flow.state == "running"),
        why_of=subject,
        shows=shows,
        command=f"rota show {id}",
        most_called=CALLED,
        aside=any(each.state == "quarantined" for each in jobs),
        forks=whole.tasks if flow.flow else [],
        starts=flow.flow if flow.flow in desk.app.registry.flows else "",
        input=editable(flow.input) if shows and flow.flow else None,
        awaited=whole.awaited,
        **_told(events(happened, deeds, names, shows=shows, limit=query.events), happened, query),
    )


def _chosen(drawn: Picture, query: RunQuery) -> str:
    if query.group is not None and query.group in drawn.members:
        return query.group
    return drawn.key_of(query.job)


def _group(drawn: Picture, query: RunQuery) -> dict[str, Any] | None:
    """The jobs of a box that stands for many, those somebody should look at first."""
    if query.group is None or query.group not in drawn.shape.crowd.folds:
        return None
    members = drawn.members[query.group]
    order = {state: place for place, (state, _) in enumerate(counts(members))}
    shown = sorted(members, key=lambda each: order[each.state])[:LISTED]
    opened = ".".join(dict.fromkeys((*drawn.opened, query.group)))
    return {
        "card": drawn.cards[query.group],
        "counts": counts(members),
        "jobs": shown,
        "left_out": len(members) - len(shown),
        "open": opened if len(opened) <= 100 else query.group,
    }


def _result(flow: views.FlowDetail, results: list[runs.Result]) -> str | None:
    if flow.state != "succeeded" or not flow.flow:
        return None
    document = {
        each.task.removeprefix(f"{flow.flow}."): msgspec.Raw(each.result or b"null")
        for each in results
        if each.state == "succeeded"
    }
    return pretty(msgspec.json.encode(document))


def _timeline_of_run(
    flow: views.FlowDetail,
    drawn: Picture,
    jobs: list[views.JobLine],
    tries: list[views.TryLine],
    doings: list[chronicle.Doing],
    now: datetime,
) -> Timeline:
    if flow.finished is None:
        now = until_now(flow.created, now, len(drawn.members))
    rows = rows_of_run(drawn, tries, doings, ready_since(jobs, flow.created), now)
    return _timeline(rows, flow.created, flow.finished, now)


def _timeline(
    rows: list[Row], start: datetime, finished: datetime | None, now: datetime
) -> Timeline:
    ends = [bar.end for row in rows for bar in row.bars]
    starts = [bar.start for row in rows for bar in row.bars]
    end = max([*ends, finished or now])
    going = None if finished is not None else now
    return Timeline(rows, min([*starts, start]), end, going, "When each job waited, ran and slept")


async def _job(desk: Desk, id: int, job: views.RunDetail, query: RunQuery, now: datetime) -> View:
    shows = desk.shows
    found = await desk.ask(
        timeline.signals(job.run, SIGNALS),
        chronicle.chronicle(id, query.events + 1),
        audit.entries(_deeds(desk), subject=str(id)),
        views.flow(job.run),
        *run_job.asked(id, shows=shows),
    )
    [signals, happened, deeds, flows, *rest] = found
    sheet = run_job.sheet(id, rest, signals, shows=shows)
    if sheet is None:
        raise RunNotFound(f"there is no run {id}; it may have been removed since it ended")
    job = sheet.job
    if job.finished is None:
        now = until_now(job.created, now, len(sheet.steps))
    rows = rows_of_job(id, job, sheet.tries, sheet.doings, now)
    return View(
        "run.html",
        title=f"{job.task} #{id}",
        id=id,
        name=job.task,
        is_flow=False,
        status=job.state,
        flow=None,
        whole=flows[0] if flows else None,
        sheet=sheet,
        group=None,
        chosen="",
        timeline=_timeline(rows, job.created, job.finished, now),
        query=query,
        why=await _why(desk, id, is_open=job.state in OPEN),
        why_of=id,
        shows=shows,
        command=f"rota show {id}",
        most_called=CALLED,
        aside=job.state == "quarantined",
        forks=[] if sheet.is_part else sheet.step_names,
        starts=job.task if not sheet.is_part and job.task in desk.app.registry.tasks else "",
        input=editable(job.args) if shows else None,
        awaited=job.awaits or [],
        **_told(events(happened, deeds, {}, shows=shows, limit=query.events), happened, query),
    )


def _deeds(desk: Desk) -> int:
    """Who did what by hand is for those who may read the audit log."""
    return DEEDS if desk.caller.may(Role.ADMIN) else 0


def _told(
    told: list[Event], happened: list[chronicle.Happening], query: RunQuery
) -> dict[str, Any]:
    more = MOST if len(happened) > query.events and query.events < MOST else 0
    return {"events": told, "more_events": more}


async def _why(desk: Desk, id: int, *, is_open: bool) -> Why | None:
    if not is_open:
        return None
    found = await explain(desk.ask, id, desk.app.settings)
    if found is None or found.verdict == "ended":
        return None
    return found if desk.shows else found.without_details()
