"""Operations on runs: start, list, show, explain, cancel, retry, signal, release from quarantine, fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rota.app import Flow, Run, Task
from rota.app.run import send_signal
from rota.engine.diagnosis.explain import explain
from rota.errors import ArgumentError, KeyBusy, RunNotFound
from rota.model.access import Role
from rota.model.explanation import Explanation
from rota.operations import run_search
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    PathId,
    decode_id_cursor,
    encode_cursor,
    extend,
)
from rota.operations.refusals import Conflict, NotFound
from rota.operations.run_detail import (
    FlowDetail,
    JobDetail,
    RunLimits,
    load_attempts,
    load_run,
)
from rota.operations.run_documents import (
    CancelledRun,
    ForkRunRequest,
    JobDocument,
    JobListQuery,
    JobPage,
    ReleasedJobs,
    RetriedRun,
    RunDocument,
    RunPage,
    SentSignal,
    SignalRequest,
    StartedRun,
    StartRunRequest,
)
from rota.operations.run_search import RunListQuery, build_run_filter
from rota.store import audit
from rota.store.audit import AuditEntry
from rota.store.database import run as run_query
from rota.store.read import job_detail
from rota.store.read import runs as read_runs
from rota.store.read.runs import AttemptRow, JobAttemptRow, JobRow

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
    return StartedRun(run.id, run.created)


async def start_audited(
    context: OperationContext, name: str, start: Callable[[PgConnection], Awaitable[Run[Any]]]
) -> Run[Any]:
    """Start a run and write its audit row in one transaction. A run found by its key is not audited."""
    database = (await context.app.open()).database

    async def transact() -> Run[Any]:
        async with database.transaction() as connection:
            run = await start(connection)
            if run.created:
                entry = AuditEntry(context.caller.name, "start run", str(run.id), {"name": name})
                await run_query(connection, audit.write_entry(entry), database.schema)
            return run

    return await database.retry(transact, database.settings.outage_timeout)


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
    next = None if found.next_id is None else encode_cursor(str(found.next_id))
    return RunPage(rows, next)


@group.operation("GET /runs/{run}", Role.VIEWER, refuses=(RunNotFound,))
async def show_run(context: OperationContext, run: PathId) -> RunDocument:
    """Show a run, or one job of a run: state, result, attempts, steps and jobs."""
    visible = context.may_see_payloads
    limits = RunLimits(MAX_JOBS, MAX_STEPS, MAX_STEPS if visible else 0)
    found = await load_run(context, run, limits, with_values=visible)
    if isinstance(found, FlowDetail):
        return _flow_document(found)
    return _job_document(found)


_ONLY_OF_A_JOB = (
    *("job", "queue", "worker", "priority", "seconds"),
    *("expires", "wakes", "awaits", "done", "total"),
)
"""Fields that are null in the document of a flow's run."""


def _flow_document(found: FlowDetail) -> RunDocument:
    flow = found.run
    first_error = next((each.error for each in found.jobs if each.error is not None), None)
    return extend(
        RunDocument,
        flow,
        name=flow.flow,
        is_flow=True,
        crashes=0,
        is_suspect=False,
        **dict.fromkeys(_ONLY_OF_A_JOB),
        error=first_error if flow.state == "failed" else None,
        attempts=[],
        steps=[],
        signals=found.signals,
        children=found.children,
        jobs=_with_attempts(found.jobs, found.attempts),
        job_count=flow.jobs,
        next_jobs=encode_cursor(str(MAX_JOBS)) if flow.jobs > MAX_JOBS else None,
        result=found.result,
    )


def _job_document(found: JobDetail) -> RunDocument:
    job, progress = found.job, found.progress
    return extend(
        RunDocument,
        job,
        job=found.id,
        name=job.task,
        is_flow=False,
        parent=None,
        done=None if progress is None else progress.done,
        total=None if progress is None else progress.total,
        note=None if progress is None else progress.note,
        attempts=found.attempts,
        steps=found.steps,
        signals=found.signals,
        children=found.children,
        jobs=[],
        job_count=0,
        next_jobs=None,
        input=job.args,
        logs=found.logs,
    )


def _with_attempts(rows: list[JobRow], past_attempts: list[JobAttemptRow]) -> list[JobDocument]:
    attempts: dict[int, list[AttemptRow]] = {}
    for each in past_attempts:
        attempts.setdefault(each.job, []).append(extend(AttemptRow, each))
    return [extend(JobDocument, each, attempts=attempts.get(each.job, [])) for each in rows]


@group.operation("GET /runs/{run}/explain", Role.VIEWER, refuses=(RunNotFound,))
async def explain_run(context: OperationContext, run: PathId) -> Explanation:
    """Explain why a run, or one of its jobs, does not run, and give the remedy."""
    found = await explain(context.read, run, context.app.settings)
    if found is None:
        raise RunNotFound(f"there is no run {run}")
    return found


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
        _with_attempts(rows, await load_attempts(context, run, rows)),
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
    return CancelledRun(run, status)  # type: ignore[arg-type]


@group.operation(
    "POST /runs/{run}/retry", Role.OPERATOR, audit="retry run", refuses=(RunNotFound, Conflict)
)
async def retry_run(context: OperationContext, run: PathId) -> RetriedRun:
    """Retry a run that failed, expired or was cancelled."""
    await context.app.run(run).retry(by=context.caller.name)
    return RetriedRun(run)


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
    return SentSignal(details[0].run if details else run, status == "sent", status, others)


@group.operation(
    "POST /runs/{run}/release", Role.OPERATOR, audit="release run", refuses=(RunNotFound,)
)
async def release_run(context: OperationContext, run: PathId) -> ReleasedJobs:
    """Release a run or its jobs from quarantine."""
    return ReleasedJobs(run, await context.app.run(run).release(by=context.caller.name))


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
    return StartedRun(forked.id, True)
