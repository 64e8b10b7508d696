"""A run of a flow, or of the calls a job has made: the graph of its jobs, with what became of each."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.cli import paint
from rota.cli.called import called_documents, print_called
from rota.cli.show_steps import print_signals, signal_documents
from rota.cli.trellis import trellis
from rota.cli.waits import brief
from rota.drawing.fold import KEPT
from rota.drawing.label import STATES, Label
from rota.model.graph import Graph

if TYPE_CHECKING:
    from rich.text import Text

    from rota.store.database import Database
    from rota.store.runs import Result
    from rota.store.timeline import SignalLine
    from rota.store.views import CalledLine, FlowDetail, JobLine, RunDetail, TryLine

__all__ = ["KEPT", "Report", "report"]

TRACEBACKS = 2
"""Failures that are shown in full."""
NAMED = 5
"""Further ones that are named."""
ASKED = 20
"""Kinds of ready jobs for which workers are looked for."""
BRIEF = 2_000
"""Characters of input or result; a larger one is for programs."""


class Report(msgspec.Struct, frozen=True):
    """What there is to say about a flow's run."""

    run: FlowDetail
    jobs: list[JobLine]
    tries: list[TryLine]
    called: list[CalledLine]
    signals: list[SignalLine]
    caller: RunDetail | None
    results: list[Result]
    stuck: set[tuple[str, str]]
    """Queues and tasks of ready jobs that no worker would take."""
    now: datetime

    def print_json(self) -> None:
        attempts: dict[int, list[dict[str, Any]]] = {}
        for each in self.tries:
            document = paint.fields(each, stored=("error",))
            attempts.setdefault(document.pop("job"), []).append(document)
        jobs = [
            {
                **paint.fields(job, stored=("args", "result", "error")),
                "attempts": attempts.get(job.job, []),
            }
            for job in self.jobs
        ]
        more = {"flow": self.run.flow or None, "is_flow": True}
        called = called_documents(self.called)
        run = paint.fields(self.run, stored=("input",))
        signals = signal_documents(self.signals)
        paint.say_json({**run, **more, "jobs": jobs, "called": called, "signals": signals})

    def print(self, kept: int | None = KEPT) -> None:
        _print(self, kept)


async def report(database: Database, id: int, *, whole: bool) -> Report | None:
    """None: it is no flow's run. `whole`: with everything that went in and came out."""
    from rota.store import runs, timeline, views

    run = await database.one(views.flow(id))
    if run is None:
        return None
    jobs = await database.run(views.jobs(id, whole=whole))
    caller: RunDetail | None = None
    if run.parent is not None:
        caller = await database.one(views.run(run.parent))
    results: list[Result] = []
    if run.flow and run.state == "succeeded":
        results = await database.run(runs.results(id))
    stuck = set()
    for queue, task in _kinds(jobs)[:ASKED]:
        [takers] = await database.run(views.takers(queue, task))
        if not takers:
            stuck.add((queue, task))
    tries = await database.run(views.tries(id))
    called = await database.run(views.called(id))
    signals = await database.run(timeline.signals(id, whole=whole))
    [now] = await database.run(views.clock())
    return Report(run, jobs, tries, called, signals, caller, results, stuck, now)


def _kinds(jobs: list[JobLine]) -> list[tuple[str, str]]:
    ready = ((job.queue, job.task) for job in jobs if job.state == "ready")
    return list(dict.fromkeys(ready))


def _print(report: Report, kept: int | None) -> None:
    run, console = report.run, paint.console()
    console.print(paint.text(f"run {run.run}", "bold"), paint.state(run.state), end="\n\n")
    paint.show(paint.facts(_facts(report)))
    for title, document in _documents(report):
        if not _is_short(document):
            _print_document(title, document)
    console.print()
    console.print(_tally(report.jobs))
    console.print()
    graph, labels = _graph(report)
    width, encoding = console.width, console.encoding
    paint.lines(trellis(graph, labels, width=width, encoding=encoding, kept=kept))
    _print_failures(report)
    _print_quarantined(report)
    print_signals(report.signals, report.now)
    print_called(report.called)


# What is said above the graph


def _facts(report: Report) -> list[tuple[str, Text | str]]:
    run, now = report.run, report.now
    facts: list[tuple[str, Text | str]] = []
    if run.flow:
        facts.append(("flow", run.flow))
    if run.parent is not None:
        facts.append(("called by" if run.flow else "calls of", _caller(report)))
    if run.origin is not None:
        facts.append(("forked from", f"run {run.origin}"))
    if run.key is not None:
        facts.append(("key", run.key))
    facts.append(("started", f"{paint.clock(run.created)}, {paint.age(run.created, now)} ago"))
    if run.finished is not None:
        ended = f"{paint.clock(run.finished)}, {paint.age(run.finished, now)} ago"
        if run.attempt == 1:  # else it lay there for a while, and nobody knows how long
            ended += f", took {paint.span((run.finished - run.created).total_seconds())}"
        facts.append(("ended", ended))
    if run.attempt > 1:
        facts.append(("attempt", str(run.attempt)))
    facts += [
        (title, _one_line(document))
        for title, document in _documents(report)
        if _is_short(document)
    ]
    return facts


def _caller(report: Report) -> str:
    run, caller = report.run, report.caller
    if caller is None:
        return f"job {run.parent}, which is gone"
    part = "" if caller.run == run.parent else f", a part of run {caller.run}"
    return f"job {run.parent}, {caller.task}{part}"


def _documents(report: Report) -> list[tuple[str, bytes]]:
    """What went into a flow and what came out. Calls have it job by job."""
    found: list[tuple[str, bytes]] = []
    if report.run.flow and report.run.input != b"{}":
        found.append(("input", report.run.input))
    if report.results:
        named = results_by_name(report.run.flow, report.results)
        found.append(("result", msgspec.json.encode(named)))
    return found


def results_by_name(flow: str, results: list[Result]) -> dict[str, msgspec.Raw]:
    """What the last tasks of a flow returned, as it was stored; null for one that was skipped."""
    return {
        each.task.removeprefix(f"{flow}."): msgspec.Raw(each.result or b"null") for each in results
    }


def _one_line(document: bytes) -> str:
    return msgspec.json.format(document, indent=0).decode()


def _is_short(document: bytes) -> bool:
    return len(document) <= 80 and len(_one_line(document)) <= 60


def _print_document(title: str, document: bytes) -> None:
    if len(document) <= BRIEF:
        paint.block(title, paint.pretty(document))
    else:
        paint.block(title, f"{paint.number(len(document))} bytes of JSON; --json has it")


def _tally(jobs: list[JobLine]) -> Text:
    """How many there are, and in which states."""
    words = paint.text("1 job" if len(jobs) == 1 else f"{paint.number(len(jobs))} jobs")
    counted = Counter(job.state for job in jobs)
    for place, state in enumerate(sorted(counted, key=_TALLY.index)):
        words.append(", " if place else ": ")
        words.append(f"{paint.number(counted[state])} {state}", paint.STATES[state])
    return words


_TALLY = ("succeeded", *(state for state in STATES if state != "succeeded"))


# The graph


def _graph(report: Report) -> tuple[Graph, dict[str, Label]]:
    tries = {each.job: each for each in report.tries}  # the last one of each
    calls: dict[int, CalledLine] = {}
    for each in report.called:
        if each.state == "running" and each.jobs:
            calls.setdefault(each.parent, each)
    parents = parents_of(report.jobs)
    labels = {}
    for job in report.jobs:
        ready_since = max(
            (each.finished for each in parents[job.job] if each.finished), default=None
        )
        labels[str(job.job)] = Label(
            state=job.state,
            detail=_detail(job, report, calls.get(job.job), ready_since),
            error=_error(job, tries.get(job.job)),
            name=f"{_name(job, report.run)} #{job.job}",
        )
    if report.run.flow:
        names = {str(job): [str(each.job) for each in above] for job, above in parents.items()}
        return Graph(names), labels
    # Calls are the caller's; which of them waits for which is only a matter of how many run at a time.
    caller = str(report.run.parent)
    labels[caller] = _caller_label(report)
    return Graph({caller: [], **{str(job.job): [caller] for job in report.jobs}}), labels


def parents_of(jobs: list[JobLine]) -> dict[int, list[JobLine]]:
    found: dict[int, list[JobLine]] = {job.job: [] for job in jobs}
    for job in jobs:
        for child in job.children:
            found[child].append(job)
    return found


def _name(job: JobLine, run: FlowDetail) -> str:
    return job.task.removeprefix(f"{run.flow}.") if run.flow else job.task


def _caller_label(report: Report) -> Label:
    caller = report.caller
    if caller is None:
        return Label(name=f"job {report.run.parent}")
    return Label(state=caller.state, name=f"{caller.task} #{report.run.parent}")


def _detail(
    job: JobLine, report: Report, call: CalledLine | None, ready_since: datetime | None
) -> str:
    words: list[str] = []
    match job.state:
        case "running" | "asleep" | "quarantined":
            words.append(f"for {paint.age(job.since, report.now)}")
            if waits := brief(job, report.now):
                words.append(waits)
        case "ready":
            since = job.since if ready_since is None else max(job.since, ready_since)
            words.append(f"for {paint.age(since, report.now)}")
        case "skipped":
            words.append(_why_skipped(job))
        case _ if job.took is not None:
            words.append(paint.span(job.took))
    if job.attempt > 1 and job.state != "skipped":
        words.append(f"attempt {job.attempt}")
    if call is not None and job.state == "running":
        words.append(f"waits for run {call.run}")
    if job.state == "ready" and (job.queue, job.task) in report.stuck:
        words.append(f"no worker takes it from queue {job.queue}")
    return ", ".join(words)


def _why_skipped(job: JobLine) -> str:
    if job.error is not None:
        message: str = json.loads(job.error).get("message", "")
        return message
    return "not needed" if job.rule == "any_failed" else "on purpose"


def _error(job: JobLine, last: TryLine | None) -> str:
    """Its error, or the one it is being tried again for."""
    if job.state in ("succeeded", "skipped"):
        return ""
    if job.error is not None:
        return paint.summary(job.error)
    return paint.summary(last.error) if last is not None and job.finished is None else ""


# What is said below the graph


def _print_failures(report: Report) -> None:
    failed = [job for job in report.jobs if job.state == "failed" and job.error is not None]
    failed.sort(key=lambda job: (job.finished or report.now, job.job))
    for job in failed[:TRACEBACKS]:
        title = f"error of {_name(job, report.run)} #{job.job}"
        paint.block(title, paint.traceback(job.error or b"{}"), "red")
    if others := failed[TRACEBACKS:]:
        named = ", ".join(f"`rota show {job.job}`" for job in others[:NAMED])
        more = ", …" if len(others) > NAMED else ""
        many = "1 more has" if len(others) == 1 else f"{paint.number(len(others))} more have"
        paint.console().print()
        paint.say(f"{many} failed: {named}{more}", "dim")


def _print_quarantined(report: Report) -> None:
    aside = [job for job in report.jobs if job.state == "quarantined"]
    if not aside:
        return
    named = ", ".join(f"`rota cancel {job.job}`" for job in aside[:NAMED])
    more = ", …" if len(aside) > NAMED else ""
    are, them = ("1 job is", "it") if len(aside) == 1 else (f"{len(aside):,} jobs are", "them")
    paint.console().print()
    paint.say(
        f"{are} in quarantine: `rota release {report.run.run}` tries {them} again, {named}{more} "
        f"{'ends' if len(aside) == 1 else 'end'} {them}",
        "magenta",
    )
