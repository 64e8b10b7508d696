"""When the jobs of a run waited, ran and slept, as far as it was written down.

When a job was claimed is known while it runs, and after that from when it ended and how long it took. What
it did before it lay down to sleep is told by its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from rota.drawing.gantt import Bar, Kind, Row
from rota.drawing.label import STATES
from rota.store.chronicle import Doing
from rota.store.views import AttemptLine, JobLine, RunDetail, TryLine
from rota.web.dashboard.run_graph import CALLER, Picture

ROWS = 120
"""So many lines are drawn."""
OVER = ("succeeded", "failed", "cancelled", "expired", "skipped")

_NOTHING = timedelta(milliseconds=1)
_QUANTA = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 43_200.0, 86_400.0)


def until_now(start: datetime, now: datetime, rows: int) -> datetime:
    """Now, a little coarser the longer it goes on and the more there is to draw: what has hardly changed is
    not drawn anew."""
    seconds = max((now - start).total_seconds(), 0.0)
    finest = seconds / (200 if rows <= 40 else 50)
    quantum = next((each for each in _QUANTA if each >= finest), _QUANTA[-1])
    return start + timedelta(seconds=(seconds // quantum + 1) * quantum)


def rows_of_run(
    drawn: Picture,
    tries: Sequence[TryLine],
    doings: Sequence[Doing],
    ready: Mapping[int, datetime],
    now: datetime,
) -> list[Row]:
    """A line for each box of the graph, in its order, so many of them."""
    tried: dict[int, list[TryLine]] = {}
    for each in tries:
        tried.setdefault(each.job, []).append(each)
    done: dict[int, list[Doing]] = {}
    for doing in doings:
        done.setdefault(doing.job, []).append(doing)
    rows = []
    for key, jobs in drawn.members.items():
        if key == CALLER:
            continue
        card = drawn.cards[key]
        bars: list[Bar] = []
        for job in jobs:
            known = tried.get(job.job, ()), done.get(job.job, ()), ready[job.job]
            bars += bars_of_job(job, *known, now)
        if len(jobs) > 1:
            bars = merged(bars)
        rows.append(Row(key, card.name, card.state, bars, card.href))
    rows.sort(key=_first)
    return rows


def _first(row: Row) -> tuple[bool, datetime | None]:
    first = min((bar.start for bar in row.bars), default=None)
    return first is None, first


def ready_since(jobs: Sequence[JobLine], created: datetime) -> dict[int, datetime]:
    """When each job could run: when the last one before it had ended."""
    found = {job.job: created for job in jobs}
    for job in jobs:
        if job.finished is not None:
            for child in job.children:
                if child in found:
                    found[child] = max(found[child], job.finished)
    return found


def bars_of_job(
    job: JobLine | RunDetail,
    tries: Sequence[TryLine | AttemptLine],
    doings: Sequence[Doing],
    ready: datetime,
    now: datetime,
) -> list[Bar]:
    bars: list[Bar] = []
    at = ready
    for each in tries:
        hint = f"attempt {each.attempt}, {each.state}"
        began = each.at - timedelta(seconds=each.took or 0.0)
        if each.took is None and each.state == "failed":
            # When it began is known to nobody but its worker, which is gone.
            began, hint = (
                min(at, each.at),
                f"attempt {each.attempt}: waited, and ran until it was lost",
            )
        _queued(bars, at, began)
        bars.append(Bar("attempt", began, each.at, each.state, hint))
        at = each.at
    awake: datetime | None = None  # since when, as far as its steps tell
    for doing in doings:
        start, end = _stretch(doing, job, now, at)
        if end <= at:
            continue  # of an attempt before
        if doing.kind == "step":
            awake = awake or max(start, at)
            continue
        _ran(bars, at, awake, start, job)
        what = "slept" if doing.kind == "sleep" else f"waited for {doing.name}"
        bars.append(Bar("asleep", max(start, at), end, "asleep", what))
        at, awake = end, None
    return bars + _last(job, at, now)


def _ran(
    bars: list[Bar], at: datetime, awake: datetime | None, until: datetime, job: JobLine | RunDetail
) -> None:
    """What lies between two sleeps."""
    if awake is None or awake >= until:
        _queued(bars, at, until)
        return
    _queued(bars, at, awake)
    state = "succeeded" if job.state == "succeeded" else "running"
    bars.append(Bar("running", awake, until, state, "ran until it lay down"))


def _last(job: JobLine | RunDetail, at: datetime, now: datetime) -> list[Bar]:
    bars: list[Bar] = []
    attempt = f"attempt {job.attempt}, {job.state}"
    if job.finished is not None:
        if job.took is None:
            return [Bar("mark", job.finished, job.finished, job.state, job.state)]
        began = job.finished - timedelta(seconds=job.took)
        _queued(bars, at, began)
        bars.append(Bar("running", began, job.finished, job.state, attempt))
    elif job.state == "running":
        _queued(bars, at, job.since)
        bars.append(Bar("running", min(job.since, now), now, "running", attempt))
    elif job.state == "asleep":
        if at < now:
            bars.append(Bar("asleep", min(max(at, job.since), now), now, "asleep", "asleep"))
    elif job.state == "ready":
        _queued(bars, at, now)
    elif job.state == "quarantined":
        bars.append(Bar("mark", job.since, job.since, "quarantined", "put in quarantine"))
    return bars


def _queued(bars: list[Bar], start: datetime, end: datetime) -> None:
    if end - start > _NOTHING:
        bars.append(Bar("queued", start, end, "ready", "waited for its turn"))


def _stretch(
    doing: Doing, job: JobLine | RunDetail, now: datetime, before: datetime
) -> tuple[datetime, datetime]:
    over = job.finished or now
    if doing.kind == "step":
        return doing.at - timedelta(seconds=doing.took or 0.0), doing.at
    if doing.kind == "sleep":
        return doing.at, min(doing.until or doing.at, over)
    if doing.open:
        return doing.at, over
    return min(before, doing.at), doing.at  # when it began to wait is not known any more


def merged(bars: Iterable[Bar]) -> list[Bar]:
    """Of many jobs on one line: what overlaps is one, in the state that somebody should look at first."""
    kinds: dict[Kind, list[Bar]] = {}
    for bar in bars:
        kinds.setdefault(bar.kind, []).append(bar)
    found: list[Bar] = []
    for kind, many in kinds.items():
        many.sort(key=_start)
        _, start, end, state, _ = many[0]
        for bar in many[1:]:
            if bar.start <= end:
                end = max(end, bar.end)
                if bar.state != state:
                    state = min(state, bar.state, key=_urgency)
            else:
                found.append(Bar(kind, start, end, state))
                _, start, end, state, _ = bar
        found.append(Bar(kind, start, end, state))
    return found


def _start(bar: Bar) -> datetime:
    return bar.start


def _urgency(state: str) -> int:
    return STATES.index(state) if state in STATES else len(STATES)


def rows_of_job(
    id: int,
    job: RunDetail,
    attempts: Sequence[AttemptLine],
    doings: Sequence[Doing],
    now: datetime,
) -> list[Row]:
    """A line for the job, and one for each thing its code did."""
    rows = [Row(str(id), job.task, job.state, bars_of_job(job, attempts, doings, job.created, now))]
    before = job.created
    for place, doing in enumerate(doings[: ROWS - 1]):
        start, end = _stretch(doing, job, now, before)
        before = end
        name, kind = doing.name, doing.kind
        if kind == "step":
            state = "failed" if doing.open else "succeeded"
            bar = Bar("running", start, end, state, name)
        else:
            name = "sleep" if kind == "sleep" else f"wait for {name}"
            state = "asleep" if job.finished is None and end >= now else "succeeded"
            bar = Bar("asleep", start, end, "asleep", name)
        rows.append(Row(f"{kind} {place}", name, state, [bar], inner=True))
    return rows
