"""One job, with all there is to say about it: for a page of its own, or beside the graph of its run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from rota.store import chronicle, timeline, views
from rota.store.query import Query
from rota.web.api.shapes import Failure, failure

STEPS = 200
LINES = 200
SIGNALS = 100
CALLED = 50
"""At most so many of each are shown."""

LETTERS = 20_000
"""Of what went in or came out; the rest is for programs."""

EDITABLE = 500_000
"""Bytes of an input that can be changed in a page."""


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    state: str
    worker: int | None
    at: datetime
    took: float | None
    error: Failure | None


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    name: str
    at: datetime
    took: float | None
    tries: int
    until: datetime | None
    state: str
    result: str | None
    error: Failure | None


@dataclass(frozen=True, slots=True)
class Said:
    """A signal: what was said, or is waited for."""

    name: str
    at: datetime | None
    brief: str | None
    """How it begins."""


@dataclass(frozen=True, slots=True)
class Sheet:
    id: int
    job: views.RunDetail
    attempts: list[Attempt]
    tries: list[views.AttemptLine]
    steps: list[Step]
    step_names: list[str]
    """As the code calls them, each once, the first first."""
    step_count: int
    doings: list[chronicle.Doing]
    signals: list[Said]
    called: list[views.CalledLine]
    progress: timeline.ProgressLine | None
    progress_words: str
    """`4 of 10`."""
    logs: list[timeline.LogLine]
    log_count: int
    trace: str | None
    error: Failure | None
    input: str | None
    result: str | None

    @property
    def is_part(self) -> bool:
        return self.job.run != self.id

    @property
    def is_over(self) -> bool:
        return self.job.finished is not None

    @property
    def many_logs(self) -> bool:
        """There may be more than were counted."""
        return self.log_count >= timeline.COUNTED

    @property
    def part(self) -> float | None:
        """How much of the whole is done; None: nobody knows."""
        done = self.progress
        return None if done is None else share(done.done, done.total)


def asked(id: int, *, shows: bool) -> tuple[Query[Any], ...]:
    """What to ask, for `sheet` to read. Signals are asked of the run."""
    return (
        views.run(id),
        views.attempts(id),
        timeline.steps(id, STEPS, whole=False),
        chronicle.doings(id),
        views.called(id, CALLED + 1),
        timeline.progress(id),
        timeline.logs(id, LINES if shows else 0),
        chronicle.trace(id),
    )


ASKED = 8
"""Answers that `sheet` wants."""


def sheet(
    id: int, answers: list[list[Any]], signals: list[timeline.SignalLine], *, shows: bool
) -> Sheet | None:
    [details, tries, steps, doings, called, progress, logs, traces] = answers
    if not details:
        return None
    job: views.RunDetail = details[0]
    heard = [each for each in signals if job.run == id or id in each.jobs]
    done = progress[0] if progress else None
    return Sheet(
        id,
        job,
        _attempts(job, tries, shows=shows),
        tries,
        [_step(each, shows=shows, over=job.finished is not None) for each in steps],
        list(dict.fromkeys(each.name for each in steps[::-1] if each.kind == "step")),
        steps[0].of if steps else 0,
        doings,
        said(heard, shows=shows),
        [each for each in called if each.jobs],
        done,
        "" if done is None else _far(done),
        logs[::-1],
        logs[0].of if logs else 0,
        trace_id(traces),
        failure(job.error, shown=shows),
        pretty(job.args) if shows else None,
        pretty(job.result) if shows else None,
    )


def _attempts(
    job: views.RunDetail, tries: list[views.AttemptLine], *, shows: bool
) -> list[Attempt]:
    """The last one first."""
    found = [
        Attempt(*(each.attempt, each.state, each.worker, each.at, each.took), failed)
        for each in tries
        for failed in [failure(each.error, shown=shows)]
    ]
    if job.finished is not None:
        error = failure(job.error, shown=shows)
        last = (job.attempt, job.state, job.worker, job.finished, job.took)
        found.append(Attempt(*last, error))
    elif job.state == "running":
        found.append(Attempt(job.attempt, "running", job.worker, job.since, None, None))
    return found[::-1]


def _step(each: timeline.StepLine, *, shows: bool, over: bool) -> Step:
    name = each.name if each.number == 1 else f"{each.name} no. {each.number}"
    return Step(
        each.kind,
        "" if each.kind == "sleep" and each.number == 1 else name,
        each.at,
        each.took,
        each.tries,
        each.until,
        _state(each, over=over),
        each.brief if shows else None,
        failure(each.error, shown=shows),
    )


def _state(each: timeline.StepLine, *, over: bool) -> str:
    if each.open:
        if over:
            return "cancelled"
        return "asleep" if each.kind == "wait" else "failed"
    return "failed" if each.error is not None else "succeeded"


def _far(done: timeline.ProgressLine) -> str:
    if done.total is None or not math.isfinite(done.total):
        return f"{done.done:,.15g} done"
    return f"{done.done:,.15g} of {done.total:,.15g}"


def said(signals: list[timeline.SignalLine], *, shows: bool) -> list[Said]:
    return [Said(each.name, each.at, each.brief if shows else None) for each in signals]


def trace_id(found: list[str]) -> str | None:
    """Of a W3C traceparent."""
    return found[0].split("-")[1] if found else None


def share(done: float, total: float | None) -> float | None:
    """How much of the whole is done; None: that makes no sense."""
    if not total or not math.isfinite(total) or not math.isfinite(done):
        return None
    return min(max(done / total, 0.0), 1.0)


def editable(document: bytes | None) -> str | None:
    """The whole of it, for somebody to change; None: it is too long for that."""
    if document is None or len(document) > EDITABLE:
        return None
    return msgspec.json.format(document, indent=2).decode()


def pretty(document: bytes | None) -> str | None:
    """JSON as people read it. Numbers stay as they were written, however large; nothing is left out but the
    end of what is very long."""
    if document is None:
        return None
    text = msgspec.json.format(document, indent=2).decode()
    if len(text) <= LETTERS:
        return text
    return (
        f"{text[:LETTERS]}\n… and {len(text) - LETTERS:,} more letters; `rota show --json` has all"
    )
