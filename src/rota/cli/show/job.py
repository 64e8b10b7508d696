"""Report on one job: a task's run, or a job of a flow."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.cli import output
from rota.cli.format.child_runs import child_run_documents, print_child_runs
from rota.cli.format.wait import describe_waits, progress_bar
from rota.cli.quarantine import parse_replay_difference
from rota.cli.show.steps import (
    StepsReport,
    load_steps_report,
    print_logs,
    print_signals,
    print_steps,
)

if TYPE_CHECKING:
    from rota.store.database import Database
    from rota.store.read.runs import (
        AttemptRow,
        ChildRunRow,
        FlowDetailRow,
        JobRow,
        RunDetailRow,
        WorkerRow,
    )


class JobReport(msgspec.Struct, frozen=True):
    """Data of a report on one job."""

    id: int
    job: RunDetailRow
    attempts: list[AttemptRow]
    worker: WorkerRow | None
    eligible_workers: int
    flow_run: FlowDetailRow | None
    """Run that the job belongs to."""
    awaited_jobs: list[JobRow]
    """Predecessors that have not ended."""
    children: list[ChildRunRow]
    steps_report: StepsReport
    """Steps, signals, progress and log lines."""
    now: datetime

    def print_json(self) -> None:
        document = output.fields(self.job, stored=("args", "options", "result", "error"))
        attempts = [output.fields(each, stored=("error",)) for each in self.attempts]
        children = child_run_documents(self.children)
        extra = {"is_flow": False, "attempts": attempts, "children": children}
        output.print_json({"job": self.id, **document, **extra, **self.steps_report.documents()})

    def print(self) -> None:
        _print(self)


async def load_report(
    database: Database, id: int, *, all_steps: bool, with_values: bool
) -> JobReport | None:
    """Load the report. `all_steps` includes every step; `with_values` includes whole results."""
    from rota.store.read import runs

    job = await database.fetch_one(runs.run(id))
    if job is None:
        return None
    worker: WorkerRow | None = None
    if job.worker is not None:
        worker = await database.fetch_one(runs.worker(job.worker))
    [eligible_workers] = await database.run(runs.count_eligible_workers(job.queue, job.task))
    flow_run: FlowDetailRow | None = None
    if job.run != id:
        flow_run = await database.fetch_one(runs.flow(job.run))
    run_jobs = await database.run(runs.jobs(job.run)) if job.state == "waiting" else []
    awaited_jobs = [each for each in run_jobs if id in each.successors and each.finished is None]
    attempts = await database.run(runs.attempts(id))
    children = await database.run(runs.child_runs(id))
    steps_report = await load_steps_report(
        database, id, job.run, all_steps=all_steps, with_values=with_values
    )
    [now] = await database.run(runs.database_time())
    return JobReport(
        id,
        job,
        attempts,
        worker,
        eligible_workers,
        flow_run,
        awaited_jobs,
        children,
        steps_report,
        now,
    )


def _print(report: JobReport) -> None:
    job, console = report.job, output.console()
    title = f"run {report.id}" if report.flow_run is None else f"job {report.id}"
    console.print(output.cell(title, "bold"), output.state_cell(job.state), end="\n\n")

    output.print_renderable(output.property_table(_properties(report)))

    output.print_block("arguments", output.format_json(job.args))
    if job.result is not None:
        output.print_block("result", output.format_json(job.result))
    if job.error is not None and job.state not in ("skipped", "quarantined"):
        output.print_block("error", output.format_traceback(job.error), "red")
    print_steps(report.steps_report, report.now, is_finished=job.finished is not None)
    print_signals(report.steps_report.signals, report.now)
    _print_attempts(report)
    print_child_runs(report.children)
    print_logs(report.steps_report.logs, report.now)


def _print_attempts(report: JobReport) -> None:
    attempts = _all_attempts(report)
    if len(attempts) <= 1 and not report.attempts:
        return
    output.console().print()
    grid = output.new_table(
        "attempt",
        "outcome",
        "worker",
        "ended",
        "duration",
        "error",
        right=("attempt", "worker", "duration"),
        free=("error",),
    )
    for each in attempts:
        grid.add_row(
            output.cell(each.attempt),
            output.cell("lost", "magenta")
            if output.is_worker_lost(each.error)
            else output.state_cell(each.state),
            output.cell(each.worker),
            output.cell(output.format_time(each.at)),
            output.cell(output.format_duration(each.seconds)),
            output.cell(_error(each, report.worker)),
        )
    output.print_renderable(grid)


def _error(attempt: AttemptRow, worker: WorkerRow | None) -> str:
    if (
        output.is_worker_lost(attempt.error)
        and worker is not None
        and worker.worker == attempt.worker
    ):
        return f"lost with worker {worker.worker} ({worker.host})"
    return output.error_summary(attempt.error)


def _properties(report: JobReport) -> list[tuple[str, str]]:
    job, now = report.job, report.now
    properties = [("task", job.task), ("queue", job.queue)]
    if report.flow_run is not None:
        source = (
            f"of flow {report.flow_run.flow}" if report.flow_run.flow else "child runs of a job"
        )
        properties.append(("part of", f"run {job.run}, {source}; see `rota show {job.run}`"))
    if job.origin is not None:
        properties.append(("forked from", f"run {job.origin}"))
    if job.priority:
        properties.append(("priority", str(job.priority)))
    if job.key is not None:
        properties.append(("key", job.key))
    if job.options is not None:
        properties.append(("options", job.options.decode()))
    properties.append(
        ("started", f"{output.format_time(job.created)}, {output.format_age(job.created, now)} ago")
    )
    if job.expires is not None and job.finished is None:
        properties.append(("expires", output.format_time(job.expires)))
    if job.finished is not None:
        properties.append(
            (
                "ended",
                f"{output.format_time(job.finished)}, {output.format_age(job.finished, now)} "
                f"ago{_format_took(report)}",
            )
        )
    properties.append(("attempt", str(job.attempt)))
    if job.worker is not None:
        properties.append(("worker", _describe_worker(report)))
    if report.steps_report.progress is not None and job.state != "succeeded":
        properties.append(("progress", progress_bar(report.steps_report.progress, now)))
    if reason := _reason(report):
        properties.append(("reason", reason))
    if job.state == "quarantined":
        properties.append(("next steps", _next_steps(report)))
    return properties


def _format_took(report: JobReport) -> str:
    job = report.job
    if job.finished is not None and any(each.until for each in report.steps_report.steps):
        # It has slept: the duration of the last part alone would mislead.
        seconds = (job.finished - job.created).total_seconds()
        return f", {output.format_duration(seconds)} after its start"
    return "" if job.seconds is None else f", after {output.format_duration(job.seconds)}"


def _next_steps(report: JobReport) -> str:
    id = report.id
    release_hint, cancel_hint = f"`rota release {id}` retries it", f"`rota cancel {id}` ends it"
    found = parse_replay_difference(report.job.error)
    if found is None:
        return f"{release_hint}, {cancel_hint}"
    steps = (
        f"deploy code that reaches {found.stored} here "
        "(ctx.version(…) separates old runs from new ones)"
    )
    fork_hint = (
        ""
        if report.flow_run
        else f", `rota fork {id} --from-step NAME` starts a new run from an earlier step"
    )
    return f"{steps}; then {release_hint}. Or {cancel_hint}{fork_hint}"


def _describe_worker(report: JobReport) -> str:
    worker = report.worker
    if worker is None:
        return f"{report.job.worker}, which has stopped"
    status = ""
    if worker.state == "stopped":
        status = ", which has stopped"
    elif worker.state == "dead":
        status = ", which is dead"
    elif worker.silent_seconds >= 10:
        status = f", silent for {output.format_duration(worker.silent_seconds)}"
    return f"{worker.worker} on {worker.host}, process {worker.pid}{status}"


def _reason(report: JobReport) -> str | None:
    """Return the reason why the job does not run, or did not."""
    match report.job.state:
        case "sleeping":
            return _sleeping_reason(report)
        case "queued":
            return _queued_reason(report)
        case "waiting":
            return _waiting_reason(report)
        case "quarantined":
            return _quarantine_reason(report)
        case "skipped" if report.job.error is not None:
            return msgspec.json.decode(report.job.error, type=WaitReason).message
        case "skipped":
            return "it was not needed, or its skip_if returned true"
    return None


class WaitReason(msgspec.Struct, frozen=True):
    message: str


def _sleeping_reason(report: JobReport) -> str | None:
    job, now = report.job, report.now
    waits = report.steps_report.waits
    if job.awaits or any(each.until == job.wakes for each in waits):
        return describe_waits(waits, now)
    if job.wakes is None:
        return None
    if job.wakes > now:
        wait = output.format_duration((job.wakes - now).total_seconds())
        until = f"until {output.format_time(job.wakes)}, in {wait}"
    else:
        until = "now due, a worker will wake it"
    if job.attempt > 1:
        return f"attempt {job.attempt - 1} failed, the next one waits: {until}"
    return f"it was started with a delay: {until}"


def _queued_reason(report: JobReport) -> str:
    job = report.job
    if report.eligible_workers:
        workers = (
            "a worker" if report.eligible_workers == 1 else f"{report.eligible_workers} workers"
        )
        if job.is_suspect:
            return f"it was lost with a worker, so it is claimed alone; {workers} can claim it"
        return f"it waits its turn; {workers} can claim it"
    return (
        f"no worker serves queue {job.queue!r} and knows task {job.task!r}; "
        "start one with `rota worker MODULE:APP`"
    )


def _quarantine_reason(report: JobReport) -> str:
    """Return the reason for the quarantine: changed code, or the lost workers."""
    if found := parse_replay_difference(report.job.error):
        return str(found)
    reason = "too many workers were lost while they ran it"
    if report.job.error is not None:
        reason = msgspec.json.decode(report.job.error, type=WaitReason).message
    lost = [
        output.error_summary(each.error)
        for each in report.attempts
        if output.is_worker_lost(each.error)
    ]
    named = ", ".join(each.removeprefix("lost with ") for each in lost[-MAX_NAMED:])
    return f"{reason}: {named}" if named else reason


MAX_NAMED = 5
"""Maximum number of predecessors, or of lost workers, that are listed by name."""


def _waiting_reason(report: JobReport) -> str:
    named = [
        f"{each.task} (job {each.job}, {each.state})" for each in report.awaited_jobs[:MAX_NAMED]
    ]
    if len(report.awaited_jobs) > MAX_NAMED:
        named.append(f"{output.format_count(len(report.awaited_jobs) - MAX_NAMED)} more")
    return f"it waits for {', '.join(named) or 'others'}"


def _all_attempts(report: JobReport) -> list[AttemptRow]:
    """Return the earlier attempts, and the last one if the job has ended."""
    from rota.store.read.runs import AttemptRow

    job = report.job
    if job.finished is None:
        return report.attempts
    last = AttemptRow(job.attempt, job.state, job.worker, job.finished, job.seconds, job.error)
    return [*report.attempts, last]
