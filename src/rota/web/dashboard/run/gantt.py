"""Timeline of a run: when its jobs were queued, running and sleeping, as far as it was recorded.

The time of the claim is known while a job runs; after that it is the end of the attempt minus its duration.
The parts of an attempt before a sleep are derived from its steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from rota.drawing.gantt import BarKind, GanttBar, GanttRow
from rota.drawing.label import urgency
from rota.store.read.run_history import RunStepRow
from rota.store.read.runs import AttemptRow, JobAttemptRow, JobRow, RunDetailRow
from rota.web.dashboard.run.graph import PARENT_KEY, GraphPicture

MAX_ROWS = 120
"""Limit of rows drawn."""
FINAL_STATES = ("succeeded", "failed", "cancelled", "expired", "skipped")

_MIN_WAIT = timedelta(milliseconds=1)
_ROUNDING_SECONDS = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 43_200.0, 86_400.0)


def rounded_now(start: datetime, now: datetime, rows: int) -> datetime:
    """Return `now`, rounded up more coarsely the longer the run lasts and the more rows it has.

    A timeline that has hardly changed is then not drawn again.
    """
    seconds = max((now - start).total_seconds(), 0.0)
    finest = seconds / (200 if rows <= 40 else 50)
    quantum = next((each for each in _ROUNDING_SECONDS if each >= finest), _ROUNDING_SECONDS[-1])
    return start + timedelta(seconds=(seconds // quantum + 1) * quantum)


def rows_of_run(
    picture: GraphPicture,
    attempts: Sequence[JobAttemptRow],
    run_steps: Sequence[RunStepRow],
    queued_at: Mapping[int, datetime],
    now: datetime,
) -> list[GanttRow]:
    """Return a row for each box of the graph, sorted by the start of its first bar."""
    attempts_by_job: defaultdict[int, list[JobAttemptRow]] = defaultdict(list)
    for each in attempts:
        attempts_by_job[each.job].append(each)
    steps_by_job: defaultdict[int, list[RunStepRow]] = defaultdict(list)
    for step in run_steps:
        steps_by_job[step.job].append(step)
    rows = []
    for key, jobs in picture.members.items():
        if key == PARENT_KEY:
            continue
        details = picture.details[key]
        bars: list[GanttBar] = []
        for job in jobs:
            past, steps = attempts_by_job[job.job], steps_by_job[job.job]
            bars += bars_of_job(job, past, steps, queued_at[job.job], now)
        if len(jobs) > 1:
            bars = merge_bars(bars)
        rows.append(GanttRow(key, details.name, details.state, bars, details.href))
    rows.sort(key=_first_start)
    return rows


def _first_start(row: GanttRow) -> tuple[bool, datetime | None]:
    first = min((bar.start for bar in row.bars), default=None)
    return first is None, first


def queued_since(jobs: Sequence[JobRow], created: datetime) -> dict[int, datetime]:
    """Return the time from which each job could run: the end of its last predecessor."""
    found = {job.job: created for job in jobs}
    for job in jobs:
        if job.finished is not None:
            for successor in job.successors:
                if successor in found:
                    found[successor] = max(found[successor], job.finished)
    return found


def bars_of_job(
    job: JobRow | RunDetailRow,
    attempts: Sequence[JobAttemptRow | AttemptRow],
    run_steps: Sequence[RunStepRow],
    queued_at: datetime,
    now: datetime,
) -> list[GanttBar]:
    bars: list[GanttBar] = []
    at = queued_at
    for each in attempts:
        hint = f"attempt {each.attempt}, {each.state}"
        began = each.at - timedelta(seconds=each.seconds or 0.0)
        if each.seconds is None and each.state == "failed":
            # Only the lost worker knew when the attempt began.
            began, hint = (
                min(at, each.at),
                f"attempt {each.attempt}: waited, and ran until it was lost",
            )
        _add_queued(bars, at, began)
        bars.append(GanttBar("attempt", began, each.at, each.state, hint))
        at = each.at
    running_since: datetime | None = None  # as far as its steps show
    for step in run_steps:
        start, end = _interval(step, job, now, at)
        if end <= at:
            continue  # of an earlier attempt
        if step.kind == "step":
            running_since = running_since or max(start, at)
            continue
        _add_running(bars, at, running_since, start, job)
        text = "slept" if step.kind == "sleep" else f"waited for {step.name}"
        bars.append(GanttBar("sleeping", max(start, at), end, "sleeping", text))
        at, running_since = end, None
    return bars + _last_bars(job, at, now)


def _add_running(
    bars: list[GanttBar],
    at: datetime,
    running_since: datetime | None,
    until: datetime,
    job: JobRow | RunDetailRow,
) -> None:
    """Add the bars between two sleeps."""
    if running_since is None or running_since >= until:
        _add_queued(bars, at, until)
        return
    _add_queued(bars, at, running_since)
    state = "succeeded" if job.state == "succeeded" else "running"
    bars.append(GanttBar("running", running_since, until, state, "ran until it lay down"))


def _last_bars(job: JobRow | RunDetailRow, at: datetime, now: datetime) -> list[GanttBar]:
    bars: list[GanttBar] = []
    attempt = f"attempt {job.attempt}, {job.state}"
    if job.finished is not None:
        if job.seconds is None:
            return [GanttBar("mark", job.finished, job.finished, job.state, job.state)]
        began = job.finished - timedelta(seconds=job.seconds)
        _add_queued(bars, at, began)
        bars.append(GanttBar("running", began, job.finished, job.state, attempt))
    elif job.state == "running":
        _add_queued(bars, at, job.since)
        bars.append(GanttBar("running", min(job.since, now), now, "running", attempt))
    elif job.state == "sleeping":
        if at < now:
            bars.append(
                GanttBar("sleeping", min(max(at, job.since), now), now, "sleeping", "sleeping")
            )
    elif job.state == "queued":
        _add_queued(bars, at, now)
    elif job.state == "quarantined":
        bars.append(GanttBar("mark", job.since, job.since, "quarantined", "put in quarantine"))
    return bars


def _add_queued(bars: list[GanttBar], start: datetime, end: datetime) -> None:
    if end - start > _MIN_WAIT:
        bars.append(GanttBar("queued", start, end, "queued", "waited for its turn"))


def _interval(
    step: RunStepRow, job: JobRow | RunDetailRow, now: datetime, before: datetime
) -> tuple[datetime, datetime]:
    job_end = job.finished or now
    if step.kind == "step":
        return step.at - timedelta(seconds=step.seconds or 0.0), step.at
    if step.kind == "sleep":
        return step.at, min(step.until or step.at, job_end)
    if step.open:
        return step.at, job_end
    return min(before, step.at), step.at  # the start of the wait is no longer recorded


def merge_bars(bars: Iterable[GanttBar]) -> list[GanttBar]:
    """Merge overlapping bars of many jobs in one row; the merged bar has the state that is most urgent."""
    kinds: dict[BarKind, list[GanttBar]] = {}
    for bar in bars:
        kinds.setdefault(bar.kind, []).append(bar)
    found: list[GanttBar] = []
    for kind, group in kinds.items():
        group.sort(key=attrgetter("start"))
        _, start, end, state, _ = group[0]
        for bar in group[1:]:
            if bar.start <= end:
                end = max(end, bar.end)
                if bar.state != state:
                    state = min(state, bar.state, key=urgency)
            else:
                found.append(GanttBar(kind, start, end, state))
                _, start, end, state, _ = bar
        found.append(GanttBar(kind, start, end, state))
    return found


def rows_of_job(
    id: int,
    job: RunDetailRow,
    attempts: Sequence[AttemptRow],
    run_steps: Sequence[RunStepRow],
    now: datetime,
) -> list[GanttRow]:
    """Return a row for the job, and one for each step, sleep and wait."""
    rows = [
        GanttRow(
            str(id), job.task, job.state, bars_of_job(job, attempts, run_steps, job.created, now)
        )
    ]
    before = job.created
    for index, step in enumerate(run_steps[: MAX_ROWS - 1]):
        start, end = _interval(step, job, now, before)
        before = end
        name, kind = step.name, step.kind
        if kind == "step":
            state = "failed" if step.open else "succeeded"
            bar = GanttBar("running", start, end, state, name)
        else:
            name = "sleep" if kind == "sleep" else f"wait for {name}"
            state = "sleeping" if job.finished is None and end >= now else "succeeded"
            bar = GanttBar("sleeping", start, end, "sleeping", name)
        rows.append(GanttRow(f"{kind} {index}", name, state, [bar], is_nested=True))
    return rows
