"""One job: a task's run, or a part of a flow's."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.cli import paint
from rota.cli.called import called_documents, print_called
from rota.cli.quarantine import mismatch_of
from rota.cli.show_steps import Durable, durable, print_logs, print_signals, print_steps
from rota.cli.waits import bar, reasons

if TYPE_CHECKING:
    from rota.store.database import Database
    from rota.store.views import (
        AttemptLine,
        CalledLine,
        FlowDetail,
        JobLine,
        RunDetail,
        WorkerLine,
    )


class Report(msgspec.Struct, frozen=True):
    """What there is to say about one job."""

    id: int
    job: RunDetail
    attempts: list[AttemptLine]
    worker: WorkerLine | None
    takers: int
    whole: FlowDetail | None
    """The run it is a part of."""
    awaited: list[JobLine]
    """What it waits for."""
    called: list[CalledLine]
    durable: Durable
    """What its own code has come to."""
    now: datetime

    def print_json(self) -> None:
        document = paint.fields(self.job, stored=("args", "options", "result", "error"))
        attempts = [paint.fields(each, stored=("error",)) for each in self.attempts]
        called = called_documents(self.called)
        more = {"is_flow": False, "attempts": attempts, "called": called}
        paint.say_json({"job": self.id, **document, **more, **self.durable.documents()})

    def print(self) -> None:
        _print(self)


async def report(database: Database, id: int, *, every: bool, whole: bool) -> Report | None:
    """`every` step of it, not only the last ones; `whole`: with everything they came to."""
    from rota.store import views

    job = await database.one(views.run(id))
    if job is None:
        return None
    worker: WorkerLine | None = None
    if job.worker is not None:
        worker = await database.one(views.worker(job.worker))
    [takers] = await database.run(views.takers(job.queue, job.task))
    flow: FlowDetail | None = None
    if job.run != id:
        flow = await database.one(views.flow(job.run))
    members = await database.run(views.jobs(job.run)) if job.state == "waiting" else []
    awaited = [each for each in members if id in each.children and each.finished is None]
    attempts = await database.run(views.attempts(id))
    called = await database.run(views.called(id))
    own = await durable(database, id, job.run, every=every, whole=whole)
    [now] = await database.run(views.clock())
    return Report(id, job, attempts, worker, takers, flow, awaited, called, own, now)


def _print(report: Report) -> None:
    job, console = report.job, paint.console()
    what = f"run {report.id}" if report.whole is None else f"job {report.id}"
    console.print(paint.text(what, "bold"), paint.state(job.state), end="\n\n")

    paint.show(paint.facts(_facts(report)))

    paint.block("arguments", paint.pretty(job.args))
    if job.result is not None:
        paint.block("result", paint.pretty(job.result))
    if job.error is not None and job.state not in ("skipped", "quarantined"):
        paint.block("error", paint.traceback(job.error), "red")
    print_steps(report.durable, report.now, is_over=job.finished is not None)
    print_signals(report.durable.signals, report.now)
    _print_attempts(report)
    print_called(report.called)
    print_logs(report.durable.logs, report.now)


def _print_attempts(report: Report) -> None:
    attempts = _attempts(report)
    if len(attempts) <= 1 and not report.attempts:
        return
    paint.console().print()
    table = paint.table(
        "attempt",
        "outcome",
        "worker",
        "ended",
        "took",
        "error",
        right=("attempt", "worker", "took"),
        free=("error",),
    )
    for each in attempts:
        table.add_row(
            paint.text(each.attempt),
            paint.text("lost", "magenta") if paint.is_loss(each.error) else paint.state(each.state),
            paint.text(each.worker),
            paint.text(paint.clock(each.at)),
            paint.text(paint.span(each.took)),
            paint.text(_error(each, report.worker)),
        )
    paint.show(table)


def _error(attempt: AttemptLine, worker: WorkerLine | None) -> str:
    if paint.is_loss(attempt.error) and worker is not None and worker.worker == attempt.worker:
        return f"lost with worker {worker.worker} ({worker.host})"
    return paint.summary(attempt.error)


def _facts(report: Report) -> list[tuple[str, str]]:
    job, now = report.job, report.now
    facts = [("task", job.task), ("queue", job.queue)]
    if report.whole is not None:
        of = f"of flow {report.whole.flow}" if report.whole.flow else "calls of a job"
        facts.append(("part of", f"run {job.run}, {of}; see `rota show {job.run}`"))
    if job.origin is not None:
        facts.append(("forked from", f"run {job.origin}"))
    if job.priority:
        facts.append(("priority", str(job.priority)))
    if job.key is not None:
        facts.append(("key", job.key))
    if job.options is not None:
        facts.append(("options", job.options.decode()))
    facts.append(("started", f"{paint.clock(job.created)}, {paint.age(job.created, now)} ago"))
    if job.expires is not None and job.finished is None:
        facts.append(("expires", paint.clock(job.expires)))
    if job.finished is not None:
        facts.append(
            (
                "ended",
                f"{paint.clock(job.finished)}, {paint.age(job.finished, now)} ago{_took(report)}",
            )
        )
    facts.append(("attempt", str(job.attempt)))
    if job.worker is not None:
        facts.append(("worker", _worker(report)))
    if report.durable.progress is not None and job.state != "succeeded":
        facts.append(("progress", bar(report.durable.progress, now)))
    if why := _why(report):
        facts.append(("why", why))
    if job.state == "quarantined":
        facts.append(("next", _next(report)))
    return facts


def _took(report: Report) -> str:
    job = report.job
    if job.finished is not None and any(each.until for each in report.durable.steps):
        # It has slept: what it took after that is the least of it.
        whole = (job.finished - job.created).total_seconds()
        return f", {paint.span(whole)} after its start"
    return "" if job.took is None else f", took {paint.span(job.took)}"


def _next(report: Report) -> str:
    id = report.id
    tries, ends = f"`rota release {id}` tries it again", f"`rota cancel {id}` ends it"
    found = mismatch_of(report.job.error)
    if found is None:
        return f"{tries}, {ends}"
    steps = f"deploy code that comes to {found.kept} there (ctx.version(…) tells old runs from new ones)"
    fork = (
        "" if report.whole else f", `rota fork {id} --from-step NAME` begins anew at a step before"
    )
    return f"{steps}; then {tries}. Or {ends}{fork}"


def _worker(report: Report) -> str:
    worker = report.worker
    if worker is None:
        return f"{report.job.worker}, which has left"
    news = ""
    if worker.state == "stopped":
        news = ", which has left"
    elif worker.state == "dead":
        news = ", which is dead"
    elif worker.silent >= 10:
        news = f", not heard of for {paint.span(worker.silent)}"
    return f"{worker.worker} on {worker.host}, process {worker.pid}{news}"


def _why(report: Report) -> str | None:
    """Why it does not run now, or did not, if it could."""
    match report.job.state:
        case "asleep":
            return _asleep(report)
        case "ready":
            return _ready(report)
        case "waiting":
            return _waiting(report)
        case "quarantined":
            return _quarantined(report)
        case "skipped" if report.job.error is not None:
            return msgspec.json.decode(report.job.error, type=Reason).message
        case "skipped":
            return "it was not needed, or its skip_if said so"
    return None


class Reason(msgspec.Struct, frozen=True):
    message: str


def _asleep(report: Report) -> str | None:
    job, now = report.job, report.now
    waits = report.durable.waits
    if job.awaits or any(each.until == job.wakes for each in waits):
        return reasons(waits, now)
    if job.wakes is None:
        return None
    if job.wakes > now:
        wait = paint.span((job.wakes - now).total_seconds())
        until = f"until {paint.clock(job.wakes)}, in {wait}"
    else:
        until = "its time has come, a worker will wake it"
    if job.attempt > 1:
        return f"attempt {job.attempt - 1} failed, the next one waits: {until}"
    return f"it was started with a delay: {until}"


def _ready(report: Report) -> str:
    job = report.job
    if report.takers:
        workers = "a worker" if report.takers == 1 else f"{report.takers} workers"
        if job.suspect:
            return f"it was lost with a worker, so it is taken by itself; {workers} can take it"
        return f"it waits its turn; {workers} can take it"
    return (
        f"no worker is there that serves queue {job.queue!r} and knows task {job.task!r}; "
        "start one with `rota worker MODULE:APP`"
    )


def _quarantined(report: Report) -> str:
    """Why it is there: its code has changed, or whom it was lost with."""
    if found := mismatch_of(report.job.error):
        return str(found)
    reason = "too many workers were lost while they ran it"
    if report.job.error is not None:
        reason = msgspec.json.decode(report.job.error, type=Reason).message
    lost = [paint.summary(each.error) for each in report.attempts if paint.is_loss(each.error)]
    named = ", ".join(each.removeprefix("lost with ") for each in lost[-NAMED:])
    return f"{reason}: {named}" if named else reason


NAMED = 5
"""Jobs that are named where a job waits for many, and workers where it was lost with many."""


def _waiting(report: Report) -> str:
    named = [f"{each.task} (job {each.job}, {each.state})" for each in report.awaited[:NAMED]]
    if len(report.awaited) > NAMED:
        named.append(f"{paint.number(len(report.awaited) - NAMED)} more")
    return f"it waits for {', '.join(named) or 'others'}"


def _attempts(report: Report) -> list[AttemptLine]:
    """Those that failed before, and the last one if it has ended."""
    from rota.store.views import AttemptLine

    job = report.job
    if job.finished is None:
        return report.attempts
    last = AttemptLine(job.attempt, job.state, job.worker, job.finished, job.took, job.error)
    return [*report.attempts, last]
