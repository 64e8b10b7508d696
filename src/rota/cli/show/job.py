"""Report on one job: a task's run, or a job of a flow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.cli import output
from rota.cli.explain import explanation_properties
from rota.cli.format.wait import progress_bar
from rota.cli.quarantine import parse_replay_difference
from rota.cli.show.child_runs import print_child_runs
from rota.cli.show.steps import print_logs, print_signals, print_steps
from rota.cli.table import Column, Table

if TYPE_CHECKING:
    from rota.model.explanation import Explanation
    from rota.operations.run_detail import JobDetail
    from rota.store.read.runs import AttemptRow, WorkerRow


def print_job(detail: JobDetail, explanation: Explanation) -> None:
    """Print a task's run, or one job of a run."""
    job, now, console = detail.job, explanation.now, output.console()
    title = f"run {detail.id}" if detail.flow_run is None else f"job {detail.id}"
    console.print(output.cell(title, "bold"), output.state_cell(job.state), end="\n\n")

    output.print_renderable(output.property_table(_properties(detail, explanation)))

    output.print_block("arguments", output.format_json(job.args))
    if job.result is not None:
        output.print_block("result", output.format_json(job.result))
    if job.error is not None and job.state not in ("skipped", "quarantined"):
        output.print_block("error", output.format_traceback(job.error), "red")
    print_steps(detail.steps[::-1], detail.signals, now, is_finished=job.finished is not None)
    print_signals(detail.signals, now)
    _print_attempts(detail, now)
    print_child_runs(detail.children, now)
    print_logs(detail.logs[::-1], now)


def _print_attempts(detail: JobDetail, now: datetime) -> None:
    attempts = _all_attempts(detail)
    if len(attempts) <= 1 and not detail.attempts:
        return
    output.console().print()
    Table["AttemptRow"](
        Column("attempt", lambda row, now: row.attempt, right=True),
        Column("outcome", lambda row, now: _outcome(row), lambda row: _STYLES[_outcome(row)]),
        Column("worker", lambda row, now: row.worker, right=True),
        Column("ended", lambda row, now: output.format_time(row.at)),
        Column("duration", lambda row, now: output.format_duration(row.seconds), right=True),
        Column("error", lambda row, now: _error(row, detail.worker), shrinks=True),
    ).print(attempts, now)


_STYLES = {**output.STATE_STYLES, "lost": "magenta"}


def _outcome(attempt: AttemptRow) -> str:
    return "lost" if output.is_worker_lost(attempt.error) else attempt.state


def _error(attempt: AttemptRow, worker: WorkerRow | None) -> str:
    if (
        output.is_worker_lost(attempt.error)
        and worker is not None
        and worker.worker == attempt.worker
    ):
        return f"lost with worker {worker.worker} ({worker.host})"
    return output.error_summary(attempt.error)


def _properties(detail: JobDetail, explanation: Explanation) -> list[tuple[str, str]]:
    job, now = detail.job, explanation.now
    properties = [("task", job.task), ("queue", job.queue)]
    if detail.flow_run is not None:
        source = (
            f"of flow {detail.flow_run.flow}" if detail.flow_run.flow else "child runs of a job"
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
    properties += _times(detail, now)
    properties.append(("attempt", str(job.attempt)))
    if job.worker is not None:
        properties.append(("worker", _describe_worker(detail)))
    if detail.progress is not None and job.state != "succeeded":
        properties.append(("progress", progress_bar(detail.progress, now)))
    properties += _reasons(detail, explanation)
    if job.state == "quarantined":
        properties.append(("next steps", _next_steps(detail)))
    return properties


def _times(detail: JobDetail, now: datetime) -> Iterator[tuple[str, str]]:
    job = detail.job
    yield (
        "started",
        f"{output.format_time(job.created)}, {output.format_age(job.created, now)} ago",
    )
    if job.expires is not None and job.finished is None:
        yield "expires", output.format_time(job.expires)
    if job.finished is not None:
        age = output.format_age(job.finished, now)
        yield "ended", f"{output.format_time(job.finished)}, {age} ago{_format_took(detail)}"


def _format_took(detail: JobDetail) -> str:
    job = detail.job
    if job.finished is not None and any(each.until for each in detail.steps):
        # It has slept: the duration of the last part alone would mislead.
        seconds = (job.finished - job.created).total_seconds()
        return f", {output.format_duration(seconds)} after its start"
    return "" if job.seconds is None else f", after {output.format_duration(job.seconds)}"


def _next_steps(detail: JobDetail) -> str:
    id = detail.id
    release_hint, cancel_hint = f"`rota release {id}` retries it", f"`rota cancel {id}` ends it"
    found = parse_replay_difference(detail.job.error)
    if found is None:
        return f"{release_hint}, {cancel_hint}"
    steps = (
        f"deploy code that reaches {found.stored} here "
        "(ctx.version(…) separates old runs from new ones)"
    )
    fork_hint = (
        ""
        if detail.flow_run
        else f", `rota fork {id} --from-step NAME` starts a new run from an earlier step"
    )
    return f"{steps}; then {release_hint}. Or {cancel_hint}{fork_hint}"


def _describe_worker(detail: JobDetail) -> str:
    worker = detail.worker
    if worker is None:
        return f"{detail.job.worker}, which has stopped"
    status = ""
    if worker.state == "stopped":
        status = ", which has stopped"
    elif worker.state == "dead":
        status = ", which is dead"
    elif worker.silent_seconds >= 10:
        status = f", silent for {output.format_duration(worker.silent_seconds)}"
    return f"{worker.worker} on {worker.host}, process {worker.pid}{status}"


def _reasons(detail: JobDetail, explanation: Explanation) -> list[tuple[str, str]]:
    """Return the reasons why the job does not run, or did not."""
    match detail.job.state:
        case "sleeping" | "queued" | "waiting":
            return explanation_properties(explanation)
        case "quarantined":
            return [("reason", _quarantine_reason(detail))]
        case "skipped" if detail.job.error is not None:
            error = msgspec.json.decode(detail.job.error, type=WaitReason)
            return [("reason", error.message)]
        case "skipped":
            return [("reason", "it was not needed, or its skip_if returned true")]
    return []


class WaitReason(msgspec.Struct, frozen=True):
    message: str


def _quarantine_reason(detail: JobDetail) -> str:
    """Return the reason for the quarantine: changed code, or the lost workers."""
    if found := parse_replay_difference(detail.job.error):
        return str(found)
    reason = "too many workers were lost while they ran it"
    if detail.job.error is not None:
        reason = msgspec.json.decode(detail.job.error, type=WaitReason).message
    lost = [
        output.error_summary(each.error)
        for each in detail.attempts
        if output.is_worker_lost(each.error)
    ]
    named = ", ".join(each.removeprefix("lost with ") for each in lost[-MAX_NAMED:])
    return f"{reason}: {named}" if named else reason


MAX_NAMED = 5
"""Maximum number of lost workers that are listed by name."""


def _all_attempts(detail: JobDetail) -> list[AttemptRow]:
    """Return the earlier attempts, and the last one if the job has ended."""
    from rota.store.read.runs import AttemptRow

    job = detail.job
    if job.finished is None:
        return detail.attempts
    last = AttemptRow(job.attempt, job.state, job.worker, job.finished, job.seconds, job.error)
    return [*detail.attempts, last]
