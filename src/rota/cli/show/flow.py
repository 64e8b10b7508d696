"""Report on a run of a flow, or of the calls of a job: the graph of its jobs with their states."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.cli import output
from rota.cli.explain import explanation_properties
from rota.cli.format.wait import wait_summary
from rota.cli.graph_text import draw_graph
from rota.cli.show.child_runs import print_child_runs
from rota.cli.show.steps import print_signals
from rota.drawing.collapse import MAX_SIMILAR
from rota.drawing.label import STATES, NodeLabel
from rota.model.graph import Graph
from rota.model.text import counted

if TYPE_CHECKING:
    from rich.text import Text

    from rota.model.explanation import Explanation
    from rota.operations.run_detail import FlowDetail
    from rota.store.read.runs import ChildRunRow, FlowDetailRow, JobAttemptRow, JobRow

__all__ = ["MAX_SIMILAR", "print_flow"]

MAX_TRACEBACKS = 2
"""Failures shown with their traceback."""
MAX_NAMED_JOBS = 5
"""Further failures listed by name."""
MAX_DOCUMENT_BYTES = 2_000
"""Size up to which input and result are printed. Larger ones are only in the JSON output."""


def print_flow(
    detail: FlowDetail, explanation: Explanation, max_similar: int | None = MAX_SIMILAR
) -> None:
    """Print a flow's run, or the calls of a job."""
    run, now, console = detail.run, explanation.now, output.console()
    console.print(output.cell(f"run {run.run}", "bold"), output.state_cell(run.state), end="\n\n")
    output.print_renderable(output.property_table(_properties(detail, explanation)))
    for title, document in _documents(detail):
        if not _is_short(document):
            _print_document(title, document)
    console.print()
    console.print(_state_counts(detail.jobs))
    console.print()
    graph, labels = _graph(detail, now)
    width, encoding = console.width, console.encoding
    output.print_lines(
        draw_graph(graph, labels, width=width, encoding=encoding, max_similar=max_similar)
    )
    _print_failures(detail, now)
    _print_quarantined(detail)
    print_signals(detail.signals, now)
    print_child_runs(detail.children, now)


# Text above the graph


def _properties(detail: FlowDetail, explanation: Explanation) -> list[tuple[str, Text | str]]:
    run, now = detail.run, explanation.now
    properties: list[tuple[str, Text | str]] = []
    if run.flow:
        properties.append(("flow", run.flow))
    if run.parent is not None:
        properties.append(("started by" if run.flow else "child runs of", _describe_caller(detail)))
    if run.origin is not None:
        properties.append(("forked from", f"run {run.origin}"))
    if run.key is not None:
        properties.append(("key", run.key))
    properties.append(
        ("started", f"{output.format_time(run.created)}, {output.format_age(run.created, now)} ago")
    )
    if run.finished is not None:
        ended = f"{output.format_time(run.finished)}, {output.format_age(run.finished, now)} ago"
        if run.attempt == 1:  # after a retry the total duration is unknown
            ended += (
                f", after {output.format_duration((run.finished - run.created).total_seconds())}"
            )
        properties.append(("ended", ended))
    if run.attempt > 1:
        properties.append(("attempt", str(run.attempt)))
    if explanation.status == "stuck":
        properties += explanation_properties(explanation)
    properties += [
        (title, _one_line(document))
        for title, document in _documents(detail)
        if _is_short(document)
    ]
    return properties


def _describe_caller(detail: FlowDetail) -> str:
    run, caller = detail.run, detail.caller
    if caller is None:
        return f"job {run.parent}, which is gone"
    part = "" if caller.run == run.parent else f", a part of run {caller.run}"
    return f"job {run.parent}, {caller.task}{part}"


def _documents(detail: FlowDetail) -> list[tuple[str, bytes]]:
    """Return the input and result of a flow. Calls have theirs on each job."""
    found: list[tuple[str, bytes]] = []
    if detail.run.flow and detail.run.input != b"{}":
        found.append(("input", detail.run.input))
    if detail.result is not None:
        found.append(("result", detail.result))
    return found


def _one_line(document: bytes) -> str:
    return msgspec.json.format(document, indent=0).decode()


def _is_short(document: bytes) -> bool:
    return len(document) <= 80 and len(_one_line(document)) <= 60


def _print_document(title: str, document: bytes) -> None:
    if len(document) <= MAX_DOCUMENT_BYTES:
        output.print_block(title, output.format_json(document))
    else:
        output.print_block(
            title, f"{output.format_count(len(document))} bytes of JSON; --json has it"
        )


def _state_counts(jobs: list[JobRow]) -> Text:
    """Return the number of jobs, in total and by state."""
    words = output.cell(counted(len(jobs), "job"))
    jobs_by_state = Counter(job.state for job in jobs)
    for index, state in enumerate(sorted(jobs_by_state, key=_STATE_ORDER.index)):
        words.append(", " if index else ": ")
        words.append(
            f"{output.format_count(jobs_by_state[state])} {state}", output.STATE_STYLES[state]
        )
    return words


_STATE_ORDER = ("succeeded", *(state for state in STATES if state != "succeeded"))


# The graph


def _graph(detail: FlowDetail, now: datetime) -> tuple[Graph, dict[str, NodeLabel]]:
    last_attempts = {each.job: each for each in detail.attempts}  # the last one of each job
    running_children: dict[int, ChildRunRow] = {}
    for each in detail.children:
        if each.state == "running" and each.jobs:
            running_children.setdefault(each.parent, each)
    predecessors = predecessors_of(detail.jobs)
    labels = {}
    for job in detail.jobs:
        queued_since = max(
            (each.finished for each in predecessors[job.job] if each.finished), default=None
        )
        labels[str(job.job)] = NodeLabel(
            state=job.state,
            detail=_detail(job, now, running_children.get(job.job), queued_since),
            error=_error(job, last_attempts.get(job.job)),
            name=f"{_name(job, detail.run)} #{job.job}",
        )
    if detail.run.flow:
        names = {
            str(job): [str(each.job) for each in before] for job, before in predecessors.items()
        }
        return Graph(names), labels
    # Calls are drawn below the caller. Edges between them only limit how many run at a time.
    caller = str(detail.run.parent)
    labels[caller] = _caller_label(detail)
    return Graph({caller: [], **{str(job.job): [caller] for job in detail.jobs}}), labels


def predecessors_of(jobs: list[JobRow]) -> dict[int, list[JobRow]]:
    found: dict[int, list[JobRow]] = {job.job: [] for job in jobs}
    for job in jobs:
        for successor in job.successors:
            found[successor].append(job)
    return found


def _name(job: JobRow, run: FlowDetailRow) -> str:
    return job.task.removeprefix(f"{run.flow}.") if run.flow else job.task


def _caller_label(detail: FlowDetail) -> NodeLabel:
    caller = detail.caller
    if caller is None:
        return NodeLabel(name=f"job {detail.run.parent}")
    return NodeLabel(state=caller.state, name=f"{caller.task} #{detail.run.parent}")


def _detail(
    job: JobRow, now: datetime, child: ChildRunRow | None, queued_since: datetime | None
) -> str:
    words: list[str] = []
    match job.state:
        case "running" | "sleeping" | "quarantined":
            words.append(f"for {output.format_age(job.since, now)}")
            if wait := wait_summary(job, now):
                words.append(wait)
        case "queued":
            since = job.since if queued_since is None else max(job.since, queued_since)
            words.append(f"for {output.format_age(since, now)}")
        case "skipped":
            words.append(_skip_reason(job))
        case _ if job.seconds is not None:
            words.append(output.format_duration(job.seconds))
    if job.attempt > 1 and job.state != "skipped":
        words.append(f"attempt {job.attempt}")
    if child is not None and job.state == "running":
        words.append(f"waits for run {child.run}")
    return ", ".join(words)


def _skip_reason(job: JobRow) -> str:
    if job.error is not None:
        message: str = json.loads(job.error).get("message", "")
        return message
    return "not needed" if job.rule == "any_failed" else "on purpose"


def _error(job: JobRow, last_attempt: JobAttemptRow | None) -> str:
    """Return the error of the job, or of the failed attempt that is being retried."""
    if job.state in ("succeeded", "skipped"):
        return ""
    if job.error is not None:
        return output.error_summary(job.error)
    return (
        output.error_summary(last_attempt.error)
        if last_attempt is not None and job.finished is None
        else ""
    )


# Text below the graph


def _print_failures(detail: FlowDetail, now: datetime) -> None:
    failed = [job for job in detail.jobs if job.state == "failed" and job.error is not None]
    failed.sort(key=lambda job: (job.finished or now, job.job))
    for job in failed[:MAX_TRACEBACKS]:
        title = f"error of {_name(job, detail.run)} #{job.job}"
        output.print_block(title, output.format_traceback(job.error or b"{}"), "red")
    if others := failed[MAX_TRACEBACKS:]:
        named = ", ".join(f"`rota show {job.job}`" for job in others[:MAX_NAMED_JOBS])
        more = ", …" if len(others) > MAX_NAMED_JOBS else ""
        count = counted(len(others), "more has", "more have")
        output.console().print()
        output.print_text(f"{count} failed: {named}{more}", "dim")


def _print_quarantined(detail: FlowDetail) -> None:
    quarantined = [job for job in detail.jobs if job.state == "quarantined"]
    if not quarantined:
        return
    named = ", ".join(f"`rota cancel {job.job}`" for job in quarantined[:MAX_NAMED_JOBS])
    more = ", …" if len(quarantined) > MAX_NAMED_JOBS else ""
    count, them = (
        ("1 job is", "it") if len(quarantined) == 1 else (f"{len(quarantined):,} jobs are", "them")
    )
    output.console().print()
    output.print_text(
        f"{count} in quarantine: `rota release {detail.run.run}` retries {them}, {named}{more} "
        f"{'ends' if len(quarantined) == 1 else 'end'} {them}",
        "magenta",
    )
