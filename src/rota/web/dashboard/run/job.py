"""Details of one job, for its own page or beside the graph of its run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from rota.operations.documents import extend
from rota.store.query import Query
from rota.store.read import job_detail, run_history, runs

MAX_STEPS = 200
MAX_LOG_LINES = 200
MAX_SIGNALS = 100
MAX_CHILDREN = 50
"""Limits of the lists on the page."""

MAX_CHARACTERS = 20_000
"""Characters shown of an input or result; the command line has the rest."""

MAX_EDITABLE_BYTES = 500_000
"""Size of an input up to which it can be edited in the page."""


class StepView(msgspec.Struct, frozen=True):
    kind: str
    name: str
    at: datetime
    seconds: float | None
    tries: int
    until: datetime | None
    state: str
    result: str | None
    error: bytes | None


@dataclass(frozen=True, slots=True)
class JobView:
    id: int
    job: runs.RunDetailRow
    attempts: list[runs.AttemptRow]
    """Attempts, the latest first."""
    past_attempts: list[runs.AttemptRow]
    steps: list[StepView]
    step_names: list[str]
    """Names of the steps in the code, each once, in order."""
    step_count: int
    run_steps: list[run_history.RunStepRow]
    signals: list[job_detail.SignalRow]
    children: list[runs.ChildRunRow]
    progress: job_detail.JobProgressRow | None
    progress_text: str
    """For example `4 of 10`."""
    logs: list[job_detail.LogRow]
    log_count: int
    trace: str | None
    input: str | None
    result: str | None

    @property
    def is_part(self) -> bool:
        return self.job.run != self.id

    @property
    def is_finished(self) -> bool:
        return self.job.finished is not None

    @property
    def has_more_logs(self) -> bool:
        """True if there may be more lines than were counted."""
        return self.log_count >= job_detail.MAX_COUNTED_LINES

    @property
    def progress_fraction(self) -> float | None:
        """Share of the work done; None if it is unknown."""
        progress = self.progress
        return None if progress is None else progress_fraction(progress.done, progress.total)


def job_queries(id: int, *, may_see_payloads: bool) -> tuple[Query[Any], ...]:
    """Return the queries whose answers `build_job_view` reads. Signals are read with the run instead."""
    return (
        runs.run(id),
        runs.attempts(id),
        job_detail.steps(id, MAX_STEPS, with_values=False),
        run_history.run_steps(id),
        runs.child_runs(id, MAX_CHILDREN + 1),
        job_detail.progress(id),
        job_detail.logs(id, MAX_LOG_LINES if may_see_payloads else 0),
        run_history.traceparent(id),
    )


def build_job_view(
    id: int,
    answers: list[list[Any]],
    signals: list[job_detail.SignalRow],
    *,
    may_see_payloads: bool,
) -> JobView | None:
    [details, attempts, steps, run_steps, children, progress, logs, traces] = answers
    if not details:
        return None
    job: runs.RunDetailRow = details[0]
    latest_progress = progress[0] if progress else None
    return JobView(
        id,
        job,
        _attempts(job, attempts),
        attempts,
        [
            _step(each, may_see_payloads=may_see_payloads, is_finished=job.finished is not None)
            for each in steps
        ],
        list(dict.fromkeys(each.name for each in steps[::-1] if each.kind == "step")),
        steps[0].total if steps else 0,
        run_steps,
        [each for each in signals if job.run == id or id in each.waiting_jobs],
        [each for each in children if each.jobs],
        latest_progress,
        "" if latest_progress is None else _progress_text(latest_progress),
        logs[::-1],
        logs[0].total if logs else 0,
        trace_id(traces),
        format_json(job.args) if may_see_payloads else None,
        format_json(job.result) if may_see_payloads else None,
    )


def _attempts(job: runs.RunDetailRow, past: list[runs.AttemptRow]) -> list[runs.AttemptRow]:
    found = list(past)
    if job.finished is not None:
        found.append(extend(runs.AttemptRow, job, at=job.finished))
    elif job.state == "running":
        found.append(extend(runs.AttemptRow, job, at=job.since, seconds=None, error=None))
    return found[::-1]


def _step(each: job_detail.StepRow, *, may_see_payloads: bool, is_finished: bool) -> StepView:
    name = each.name if each.number == 1 else f"{each.name} no. {each.number}"
    return extend(
        StepView,
        each,
        name="" if each.kind == "sleep" and each.number == 1 else name,
        state=_state(each, is_finished=is_finished),
        result=each.result_preview if may_see_payloads else None,
    )


def _state(each: job_detail.StepRow, *, is_finished: bool) -> str:
    if each.open:
        if is_finished:
            return "cancelled"
        return "sleeping" if each.kind == "wait" else "failed"
    return "failed" if each.error is not None else "succeeded"


def _progress_text(progress: job_detail.JobProgressRow) -> str:
    if progress.total is None or not math.isfinite(progress.total):
        return f"{progress.done:,.15g} done"
    return f"{progress.done:,.15g} of {progress.total:,.15g}"


def trace_id(found: list[str]) -> str | None:
    """Return the trace id of a W3C traceparent."""
    return found[0].split("-")[1] if found else None


def progress_fraction(done: float, total: float | None) -> float | None:
    """Return the share of the work done, or None if `total` is unknown, zero or not finite."""
    if not total or not math.isfinite(total) or not math.isfinite(done):
        return None
    return min(max(done / total, 0.0), 1.0)


def editable_json(document: bytes | None) -> str | None:
    """Return the whole document for editing, or None if it is too long."""
    if document is None or len(document) > MAX_EDITABLE_BYTES:
        return None
    return msgspec.json.format(document, indent=2).decode()


def format_json(document: bytes | None) -> str | None:
    """Return JSON indented, with numbers exactly as stored, and truncated if it is very long."""
    if document is None:
        return None
    text = msgspec.json.format(document, indent=2).decode()
    if len(text) <= MAX_CHARACTERS:
        return text
    return (
        f"{text[:MAX_CHARACTERS]}\n… and {len(text) - MAX_CHARACTERS:,} more letters; `rota "
        "show --json` has all"
    )
