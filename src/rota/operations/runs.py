"""Operations on runs: start, list, show, cancel, retry, signal, release from quarantine, fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from rota.app import Flow, Run, Task
from rota.app.run import send_signal
from rota.errors import ArgumentError, KeyBusy, RunNotFound
from rota.model.access import Role
from rota.operations import run_search
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    PathId,
    decode_id_cursor,
    encode_cursor,
    error_detail,
    stored_json,
    to_document,
)
from rota.operations.filters import RunListQuery, build_run_filter
from rota.operations.refusals import Conflict, NotFound
from rota.operations.run_detail import (
    FlowDetail,
    JobDetail,
    RunLimits,
    load_attempts,
    load_run,
)
from rota.operations.run_documents import (
    AttemptDocument,
    CancelledRun,
    ChildRunDocument,
    ForkRunRequest,
    JobDocument,
    JobListQuery,
    JobPage,
    LogLine,
    ReleasedJobs,
    RetriedRun,
    RunDocument,
    RunPage,
    RunSummary,
    SentSignal,
    SignalDocument,
    SignalRequest,
    StartedRun,
    StartRunRequest,
    StepDocument,
)
from rota.store import audit, pg_errors
from rota.store.audit import AuditEntry
from rota.store.database import run as run_query
from rota.store.read import job_detail
from rota.store.read import runs as read_runs

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

group = OperationGroup("runs")

MAX_STEPS = 200
"""Number of latest steps and log lines shown for a job."""

MAX_JOBS = 200
"""Number of first jobs shown with a run."""


@group.operation(
    "POST /runs", Role.OPERATOR, status=201, audit="start run", refuses=(NotFound, KeyBusy)
)
async def start_run(context: OperationContext, body: StartRunRequest) -> StartedRun:
    """Start a task or a flow. The run is stored before the response is sent; with a key, repeating the
    request is safe.
    """
    app = context.app
    options: dict[str, Any] = {"key": body.key, "delay": body.delay, "priority": body.priority}
    flow, task = app.registry.flows.get(body.name), app.registry.get(body.name)
    if flow is not None and body.queue is not None:
        raise ArgumentError(
            f"{body.name!r} is a flow, each of its tasks has a queue of its own; leave out queue"
        )
    if flow is None and task is None:
        raise NotFound(f"this app has no task and no flow {body.name!r}")

    async def start(connection: PgConnection) -> Run[Any]:
        if flow is not None:
            return await Flow(app, flow).options(on=connection, **options).start(**body.input)
        assert task is not None
        bound = Task[Any, Any](app, task).options(on=connection, queue=body.queue, **options)
        return await bound.start(**body.input)

    run = await start_audited(context, body.name, start)
    if run.created:
        for started in [task] if flow is None else [node.task for node in flow.plan.nodes]:
            assert started is not None
            queue = body.queue or started.policy.queue
            app.process_counters.count_enqueued((queue, started.name))
    return StartedRun(str(run.id), run.created)


async def start_audited(
    context: OperationContext, name: str, start: Callable[[PgConnection], Awaitable[Run[Any]]]
) -> Run[Any]:
    """Start a run and write its audit row in one transaction. A run found by its key is not audited."""
    database = (await context.app.open()).database
    with pg_errors.translated(database.schema, own_connection=True):
        async with database.transaction(database.settings.outage_timeout) as connection:
            run = await start(connection)
            if run.created:
                entry = AuditEntry(context.caller.name, "start run", str(run.id), {"name": name})
                await run_query(connection, audit.write_entry(entry), database.schema)
    return run


@group.operation("GET /runs", Role.VIEWER)
async def list_runs(context: OperationContext, query: RunListQuery) -> RunPage:
    """List runs, the latest first. A page that is not full can have a next page, because each search is
    limited.
    """
    run_filter = build_run_filter(context, query)
    before = decode_id_cursor(query.cursor, read_runs.MAX_ID)
    found = await run_search.find_runs(
        context.read, run_filter, query.limit, before=before, seconds=context.search_seconds
    )
    rows = await run_search.load_rows(context.read, run_filter, found.positions)
    return RunPage(
        [
            to_document(RunSummary, each, note=each.note if context.may_see_payloads else UNSET)
            for each in rows
        ],
        None if found.next_id is None else encode_cursor(str(found.next_id)),
    )


@group.operation("GET /runs/{run}", Role.VIEWER, refuses=(RunNotFound,))
async def show_run(context: OperationContext, run: PathId) -> RunDocument:
    """Show a run, or one job of a run: state, result, attempts, steps and jobs."""
    visible = context.may_see_payloads
    limits = RunLimits(MAX_JOBS, MAX_STEPS, MAX_STEPS if visible else 0)
    found = await load_run(context, run, limits, with_values=visible)
    if isinstance(found, FlowDetail):
        return _flow_document(context, found)
    return _job_document(context, found)


def _flow_document(context: OperationContext, found: FlowDetail) -> RunDocument:
    visible, flow = context.may_see_payloads, found.run
    first_error = next((each.error for each in found.jobs if each.error is not None), None)
    return to_document(
        RunDocument,
        flow,
        job=None,
        name=flow.flow,
        is_flow=True,
        queue=None,
        worker=None,
        seconds=None,
        expires=None,
        wakes=None,
        awaits=None,
        done=None,
        total=None,
        crashes=0,
        is_suspect=False,
        priority=None,
        error=error_detail(first_error, visible=visible) if flow.state == "failed" else None,
        attempts=[],
        steps=[],
        signals=_signal_documents(context, found.signals),
        children=[to_document(ChildRunDocument, each) for each in found.children],
        jobs=_job_documents(context, found.jobs, found.attempts),
        job_count=flow.jobs,
        next_jobs=encode_cursor(str(MAX_JOBS)) if flow.jobs > MAX_JOBS else None,
        input=stored_json(flow.input, visible=visible),
        result=stored_json(found.result, visible=visible),
    )


def _job_document(context: OperationContext, found: JobDetail) -> RunDocument:
    visible, job, progress = context.may_see_payloads, found.job, found.progress
    return to_document(
        RunDocument,
        job,
        job=str(found.id),
        name=job.task,
        is_flow=False,
        parent=None,
        done=None if progress is None else progress.done,
        total=None if progress is None else progress.total,
        note=(None if progress is None else progress.note) if visible else UNSET,
        options=stored_json(job.options, visible=visible),
        error=error_detail(job.error, visible=visible),
        attempts=[_attempt_document(context, each) for each in found.attempts],
        steps=[
            to_document(
                StepDocument,
                each,
                error=error_detail(each.error, visible=visible),
                result=stored_json(each.result, visible=visible),
            )
            for each in found.steps
        ],
        signals=_signal_documents(context, found.signals),
        children=[to_document(ChildRunDocument, each) for each in found.children],
        jobs=[],
        job_count=0,
        next_jobs=None,
        input=stored_json(job.args, visible=visible),
        result=stored_json(job.result, visible=visible),
        logs=[to_document(LogLine, each) for each in found.logs] if visible else UNSET,
    )


def _attempt_document(
    context: OperationContext, row: read_runs.AttemptRow | read_runs.JobAttemptRow
) -> AttemptDocument:
    return to_document(
        AttemptDocument, row, error=error_detail(row.error, visible=context.may_see_payloads)
    )


def _signal_documents(
    context: OperationContext, rows: list[job_detail.SignalRow]
) -> list[SignalDocument]:
    return [
        to_document(
            SignalDocument,
            each,
            payload=stored_json(each.payload, visible=context.may_see_payloads),
        )
        for each in rows
    ]


def _job_documents(
    context: OperationContext,
    rows: list[read_runs.JobRow],
    past_attempts: list[read_runs.JobAttemptRow],
) -> list[JobDocument]:
    attempts: dict[int, list[AttemptDocument]] = {}
    for each in past_attempts:
        attempts.setdefault(each.job, []).append(_attempt_document(context, each))
    return [
        to_document(
            JobDocument,
            each,
            error=error_detail(each.error, visible=context.may_see_payloads),
            attempts=attempts.get(each.job, []),
            input=stored_json(each.args, visible=context.may_see_payloads),
            result=stored_json(each.result, visible=context.may_see_payloads),
        )
        for each in rows
    ]


@group.operation("GET /runs/{run}/jobs", Role.VIEWER, refuses=(RunNotFound,))
async def list_jobs(context: OperationContext, run: PathId, query: JobListQuery) -> JobPage:
    """List the jobs of a flow run in graph order."""
    after = min(decode_id_cursor(query.cursor, 0), read_runs.NO_LIMIT - query.limit)
    flows, rows = await context.read(
        read_runs.flow(run),
        read_runs.jobs(run, with_values=context.may_see_payloads, after=after, limit=query.limit),
    )
    if not flows:
        raise RunNotFound(f"there is no run {run} of a flow")
    end = after + query.limit
    return JobPage(
        _job_documents(context, rows, await load_attempts(context, run, rows)),
        encode_cursor(str(end)) if flows[0].jobs > end else None,
    )


async def describe_run(context: OperationContext, id: int) -> str:
    """Return "run 1", or "job 2 of run 1"."""
    [found] = await context.read(read_runs.run(id))
    return f"job {id} of run {found[0].run}" if found and found[0].run != id else f"run {id}"


@group.operation(
    "POST /runs/{run}/cancel", Role.OPERATOR, audit="cancel run", refuses=(RunNotFound, Conflict)
)
async def cancel_run(context: OperationContext, run: PathId) -> CancelledRun:
    """Cancel a run with all its jobs. A worker that runs one of them is asked to stop it."""
    status = await context.app.run(run).cancel(by=context.caller.name)
    if status not in ("cancelled", "requested"):
        has_ended = "was skipped" if status == "skipped" else f"has {status}"
        raise Conflict(f"{await describe_run(context, run)} {has_ended} already")
    return CancelledRun(str(run), status)  # type: ignore[arg-type]


@group.operation(
    "POST /runs/{run}/retry", Role.OPERATOR, audit="retry run", refuses=(RunNotFound, Conflict)
)
async def retry_run(context: OperationContext, run: PathId) -> RetriedRun:
    """Retry a run that failed, expired or was cancelled."""
    await context.app.run(run).retry(by=context.caller.name)
    return RetriedRun(str(run))


@group.operation(
    "POST /runs/{run}/signals", Role.OPERATOR, audit="signal run", refuses=(RunNotFound,)
)
async def signal_run(context: OperationContext, run: PathId, body: SignalRequest) -> SentSignal:
    """Send a signal to a run; `ctx.wait_signal(name)` returns its payload. The first signal of a name is
    kept.
    """
    status = await send_signal(context.app, run, body.name, body.payload, by=context.caller.name)
    details, waits, signals = await context.read(
        read_runs.run(run), job_detail.open_waits(run), job_detail.signals(run)
    )
    awaited = {each.name for each in waits if each.kind == "wait"}
    # A job that waited may have received it already.
    received = {each.name for each in signals if each.waiting_jobs}
    others = [] if body.name in awaited | received else sorted(awaited)
    return SentSignal(str(details[0].run if details else run), status == "sent", status, others)


@group.operation(
    "POST /runs/{run}/release", Role.OPERATOR, audit="release run", refuses=(RunNotFound,)
)
async def release_run(context: OperationContext, run: PathId) -> ReleasedJobs:
    """Release a run or its jobs from quarantine."""
    return ReleasedJobs(str(run), await context.app.run(run).release(by=context.caller.name))


@group.operation(
    "POST /runs/{run}/fork",
    Role.OPERATOR,
    status=201,
    audit="fork run",
    refuses=(RunNotFound, Conflict),
)
async def fork_run(context: OperationContext, run: PathId, body: ForkRunRequest) -> StartedRun:
    """Start a new run from a task or step of this one."""
    forked = await context.app.fork(
        run, from_=body.task, from_step=body.step, input=body.input, by=context.caller.name
    )
    return StartedRun(str(forked.id), True)
