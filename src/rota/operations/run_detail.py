"""Rows about a run, loaded in one place for the HTTP API and the command line."""

from __future__ import annotations

import msgspec

from rota.errors import RunNotFound
from rota.operations.declare import OperationContext
from rota.store import runs
from rota.store.read import job_detail
from rota.store.read import runs as read_runs
from rota.store.read.job_detail import JobProgressRow, LogRow, SignalRow, StepRow, WaitRow
from rota.store.read.runs import (
    AttemptRow,
    ChildRunRow,
    FlowDetailRow,
    JobAttemptRow,
    JobRow,
    RunDetailRow,
    WorkerRow,
)


class RunLimits(msgspec.Struct, frozen=True):
    """Number of rows to load."""

    jobs: int = read_runs.NO_LIMIT
    """First jobs of a flow."""
    steps: int = job_detail.NO_LIMIT
    """Latest steps of a job."""
    logs: int = job_detail.NO_LIMIT
    """Latest log lines of a job."""


class FlowDetail(msgspec.Struct, frozen=True):
    """Run of a flow, or of the calls of a job."""

    run: FlowDetailRow
    jobs: list[JobRow]
    attempts: list[JobAttemptRow]
    """Attempts before the last one of each job."""
    children: list[ChildRunRow]
    signals: list[SignalRow]
    caller: RunDetailRow | None
    """Job that started the run."""
    result: bytes | None
    """Results of the final tasks by name; None if the flow has none."""


class JobDetail(msgspec.Struct, frozen=True):
    """Run of a task, or one job of a run."""

    id: int
    job: RunDetailRow
    attempts: list[AttemptRow]
    worker: WorkerRow | None
    flow_run: FlowDetailRow | None
    """Run that the job belongs to."""
    children: list[ChildRunRow]
    steps: list[StepRow]
    waits: list[WaitRow]
    signals: list[SignalRow]
    progress: JobProgressRow | None
    logs: list[LogRow]


async def load_run(
    context: OperationContext, id: int, limits: RunLimits, *, with_values: bool
) -> FlowDetail | JobDetail:
    """Load a run, or a job of a run; with `with_values` including inputs, results and payloads."""
    flows, jobs = await context.read(read_runs.flow(id), read_runs.run(id))
    if flows:
        return await _load_flow(context, flows[0], limits, with_values=with_values)
    if not jobs:
        raise RunNotFound(f"there is no run {id}; list the runs with `rota runs`")
    return await _load_job(context, id, jobs[0], limits, with_values=with_values)


async def _load_flow(
    context: OperationContext, run: FlowDetailRow, limits: RunLimits, *, with_values: bool
) -> FlowDetail:
    jobs, children, signals, results, *callers = await context.read(
        read_runs.jobs(run.run, with_values=with_values, limit=limits.jobs),
        read_runs.child_runs(run.run),
        job_detail.signals(run.run, with_values=with_values),
        runs.results(run.run),
        *([] if run.parent is None else [read_runs.run(run.parent)]),
    )
    return FlowDetail(
        run,
        jobs,
        await load_attempts(context, run.run, jobs),
        children,
        signals,
        callers[0][0] if callers and callers[0] else None,
        flow_result(run, results),
    )


async def load_attempts(
    context: OperationContext, run: int, jobs: list[JobRow]
) -> list[JobAttemptRow]:
    """Return the attempts of these jobs before the last one of each."""
    if not jobs:
        return []
    [found] = await context.read(read_runs.job_attempts(run, [each.job for each in jobs]))
    return list(found)


def flow_result(run: FlowDetailRow, results: list[runs.JobResultRow]) -> bytes | None:
    """Return the results of a flow's final tasks by name, null for a skipped one, as in Python."""
    if run.state != "succeeded" or not run.flow or not results:
        return None
    return msgspec.json.encode(results_by_name(run.flow, results))


def results_by_name(flow: str, results: list[runs.JobResultRow]) -> dict[str, msgspec.Raw]:
    return {
        each.task.removeprefix(f"{flow}."): msgspec.Raw(each.result or b"null") for each in results
    }


async def _load_job(
    context: OperationContext, id: int, job: RunDetailRow, limits: RunLimits, *, with_values: bool
) -> JobDetail:
    (
        attempts,
        children,
        steps,
        waits,
        signals,
        progress,
        logs,
        flow_runs,
        *workers,
    ) = await context.read(
        read_runs.attempts(id),
        read_runs.child_runs(id),
        job_detail.steps(id, limits.steps, with_values=with_values),
        job_detail.open_waits(id),
        job_detail.signals(job.run, with_values=with_values),
        job_detail.progress(id),
        job_detail.logs(id, limits.logs),
        read_runs.flow(job.run),
        *([] if job.worker is None else [read_runs.worker(job.worker)]),
    )
    return JobDetail(
        id,
        job,
        attempts,
        workers[0][0] if workers and workers[0] else None,
        flow_runs[0] if flow_runs and job.run != id else None,
        children,
        steps,
        waits,
        [each for each in signals if job.run == id or id in each.waiting_jobs],
        progress[0] if progress else None,
        logs,
    )
