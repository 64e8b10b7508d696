"""Runs over HTTP: start, list, show, cancel, try again, tell something, let out of quarantine, fork."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.app import Flow, Run, Task, listing
from rota.errors import ArgumentError, RunNotFound
from rota.model.access import Role
from rota.store import runs, timeline, views
from rota.web.answers import Refused
from rota.web.api.matching import RunsQuery, matching
from rota.web.api.operations import Desk, Table
from rota.web.api.run_documents import (
    Attempt,
    Called,
    Cancelled,
    Fork,
    Job,
    JobPage,
    JobsQuery,
    Line,
    Released,
    RunDocument,
    RunItem,
    RunPage,
    Sent,
    Signal,
    Start,
    Started,
    Step,
    Told,
    Tried,
)
from rota.web.api.shapes import Number, cursor, failure, number, shape, stored

table = Table("runs")

STEPS = 200
"""The last ones of a job, and lines of its log, that are shown."""

JOBS = 200
"""The first ones of a run that are shown with it."""


@table.add("POST", "/runs", Role.OPERATOR, status=201, fails=(404, 409))
async def start_run(desk: Desk, body: Start) -> Started:
    """Start a task or a flow. It is durable when this is answered; with a key it can be sent again."""
    app = desk.app
    how: dict[str, Any] = {"key": body.key, "delay": body.delay, "priority": body.priority}
    run: Run[Any]
    flow, task = app.registry.flows.get(body.name), app.registry.get(body.name)
    if flow is not None:
        if body.queue is not None:
            raise ArgumentError(
                f"{body.name!r} is a flow, each of its tasks has a queue of its own; leave out queue"
            )
        run = await Flow(app, flow).using(**how).start(**body.input)
    elif task is not None:
        run = await Task[Any, Any](app, task).using(queue=body.queue, **how).start(**body.input)
    else:
        raise Refused(404, "not_found", f"this app has no task and no flow {body.name!r}")
    return Started(str(run.id), run.created)


@table.add("GET", "/runs", Role.VIEWER)
async def list_runs(desk: Desk, query: RunsQuery) -> RunPage:
    """Runs, the latest first. A page that is not full can have a next one: looking takes its time."""
    meant = matching(desk, query)
    before = number(query.cursor, views.NEWEST)
    found = await listing.find(desk.ask, meant, query.limit, before=before)
    lines = await listing.lines(desk.ask, meant, found.spots)
    return RunPage(
        [shape(RunItem, each) for each in lines],
        None if found.next is None else cursor(str(found.next)),
    )


@table.add("GET", "/runs/{run}", Role.VIEWER, fails=(404,))
async def show_run(desk: Desk, run: Number) -> RunDocument:
    """One run, or one job of a flow's: where it is, what it came to, its attempts, steps and jobs."""
    flows, details = await desk.ask(views.flow(run), views.run(run))
    if flows:
        return await _flow(desk, flows[0])
    if not details:
        raise RunNotFound(f"there is no run {run}")
    return await _job(desk, run, details[0])


async def _flow(desk: Desk, flow: views.FlowDetail) -> RunDocument:
    shows, run = desk.shows, flow.run
    jobs, called, signals, results = await desk.ask(
        views.jobs(run, whole=shows, limit=JOBS),
        views.called(run),
        timeline.signals(run, whole=shows),
        runs.results(run),
    )
    result: msgspec.Raw | UnsetType = UNSET
    if shows:
        ended = results if flow.state == "succeeded" and flow.flow else []
        document = {
            each.task.removeprefix(f"{flow.flow}."): msgspec.Raw(each.result or b"null")
            for each in ended
            if each.state == "succeeded"
        }
        result = msgspec.Raw(msgspec.json.encode(document) if ended else b"null")
    first = next((each.error for each in jobs if each.error is not None), None)
    return shape(
        RunDocument,
        flow,
        job=None,
        name=flow.flow,
        is_flow=True,
        queue=None,
        worker=None,
        took=None,
        expires=None,
        wakes=None,
        awaits=None,
        priority=None,
        error=failure(first, shown=shows) if flow.state == "failed" else None,
        attempts=[],
        steps=[],
        signals=_signals(desk, signals),
        called=[shape(Called, each) for each in called],
        jobs=await _jobs(desk, run, jobs),
        job_count=flow.jobs,
        next_jobs=cursor(str(JOBS)) if flow.jobs > JOBS else None,
        input=stored(flow.input, shown=shows),
        result=result,
    )


async def _job(desk: Desk, id: int, job: views.RunDetail) -> RunDocument:
    shows = desk.shows
    attempts, called, steps, signals, logs = await desk.ask(
        views.attempts(id),
        views.called(id),
        timeline.steps(id, STEPS, whole=shows),
        timeline.signals(job.run, whole=shows),
        timeline.logs(id, STEPS if shows else 0),
    )
    heard = [each for each in signals if job.run == id or id in each.jobs]
    return shape(
        RunDocument,
        job,
        job=str(id),
        name=job.task,
        is_flow=False,
        parent=None,
        error=failure(job.error, shown=shows),
        attempts=[_attempt(desk, each) for each in attempts],
        steps=[
            shape(
                Step,
                each,
                error=failure(each.error, shown=shows),
                result=stored(each.result, shown=shows),
            )
            for each in steps
        ],
        signals=_signals(desk, heard),
        called=[shape(Called, each) for each in called],
        jobs=[],
        job_count=0,
        next_jobs=None,
        input=stored(job.args, shown=shows),
        result=stored(job.result, shown=shows),
        logs=[shape(Line, each) for each in logs] if shows else UNSET,
    )


def _attempt(desk: Desk, row: views.AttemptLine | views.TryLine) -> Attempt:
    return shape(Attempt, row, error=failure(row.error, shown=desk.shows))


def _signals(desk: Desk, rows: list[timeline.SignalLine]) -> list[Signal]:
    return [shape(Signal, each, payload=stored(each.payload, shown=desk.shows)) for each in rows]


async def _jobs(desk: Desk, run: int, rows: list[views.JobLine]) -> list[Job]:
    [tries] = await desk.ask(views.tries(run, [each.job for each in rows])) if rows else [[]]
    attempts: dict[int, list[Attempt]] = {}
    for each in tries:
        attempts.setdefault(each.job, []).append(_attempt(desk, each))
    return [
        shape(
            Job,
            each,
            error=failure(each.error, shown=desk.shows),
            attempts=attempts.get(each.job, []),
            input=stored(each.args, shown=desk.shows),
            result=stored(each.result, shown=desk.shows),
        )
        for each in rows
    ]


@table.add("GET", "/runs/{run}/jobs", Role.VIEWER, fails=(404,))
async def list_jobs(desk: Desk, run: Number, query: JobsQuery) -> JobPage:
    """The jobs of a flow's run, in the order of its graph."""
    after = min(number(query.cursor, 0), views.EVERY - query.limit)
    flows, rows = await desk.ask(
        views.flow(run), views.jobs(run, whole=desk.shows, after=after, limit=query.limit)
    )
    if not flows:
        raise RunNotFound(f"there is no run {run} of a flow")
    end = after + query.limit
    return JobPage(await _jobs(desk, run, rows), cursor(str(end)) if flows[0].jobs > end else None)


@table.add("POST", "/runs/{run}/cancel", Role.OPERATOR, fails=(404, 409))
async def cancel_run(desk: Desk, run: Number) -> Cancelled:
    """Make it not happen, or ask its worker to stop it. Of a flow, all of it."""
    answer = await desk.app.run(run).cancel(by=desk.caller.name)
    if answer not in ("cancelled", "requested"):
        raise Refused(409, "conflict", f"run {run} is over: it is {answer}")
    return Cancelled(str(run), answer)  # type: ignore[arg-type]


@table.add("POST", "/runs/{run}/retry", Role.OPERATOR, fails=(404, 409))
async def retry_run(desk: Desk, run: Number) -> Tried:
    """Try it once more, although it failed, expired or was cancelled."""
    await desk.app.run(run).retry(by=desk.caller.name)
    return Tried(str(run))


@table.add("POST", "/runs/{run}/signals", Role.OPERATOR, fails=(404,))
async def signal_run(desk: Desk, run: Number, body: Told) -> Sent:
    """Tell it something, for `ctx.wait(name)` in its code. The first signal of a name stands."""
    sent = await desk.app.run(run).signal(body.name, body.payload, by=desk.caller.name)
    return Sent(str(run), sent)


@table.add("POST", "/runs/{run}/release", Role.OPERATOR, fails=(404,))
async def release_run(desk: Desk, run: Number) -> Released:
    """Let it, or the jobs of it, out of quarantine."""
    return Released(str(run), await desk.app.run(run).release(by=desk.caller.name))


@table.add("POST", "/runs/{run}/fork", Role.OPERATOR, status=201, fails=(404, 409))
async def fork_run(desk: Desk, run: Number, body: Fork) -> Started:
    """Run it once more from somewhere on, as a run of its own."""
    forked = await desk.app.fork(
        run, from_=body.task, from_step=body.step, input=body.input, by=desk.caller.name
    )
    return Started(str(forked.id), True)
