"""`rota runs`, `show`, `cancel` and `retry`: what became of a run, and what to do about it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from rota.cli import paint
from rota.cli.endings import NOT_THERE, OK, Told, leave, tell
from rota.cli.target import Target, with_target
from rota.errors import RotaError, RunNotFound

if TYPE_CHECKING:
    from rich.console import Console

    from rota import Rota
    from rota.store.views import AttemptLine, RunDetail, RunLine, WorkerLine


class RunId(click.IntRange):
    name = "run's id"


RUN = RunId(1, 2**63 - 1)


@click.command()
@with_target
@click.option("--task", metavar="NAME", help="Of this task only.")
@click.option("--queue", metavar="NAME", help="Of this queue only.")
@click.option("--state", type=click.Choice(list(paint.STATES)), help="In this state only.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--before", type=RUN, metavar="RUN", help="Only those started before this one.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def runs(
    target: Target,
    task: str | None,
    queue: str | None,
    state: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """List runs, the latest first."""
    from rota.store import views

    async def asking(app: Rota) -> tuple[list[RunLine], datetime]:
        database = (await app.open()).database
        query = views.runs(task, queue, state, before or views.NEWEST, limit)
        [now] = await database.run(views.clock())
        return await database.run(query), now

    found, now = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each) for each in found])
    elif not found:
        filtered = any((task, queue, state, before))
        click.echo("no run fits" if filtered else "no runs yet; start one with `rota start TASK`")
    else:
        _print_runs(found, now)
        if len(found) == limit:
            _hint(f"older ones: rota runs --before {found[-1].run}")


def _print_runs(found: list[RunLine], now: datetime) -> None:
    columns = ["run", "task", "queue", "state", "attempt", "age"]
    has_keys = any(each.key is not None for each in found)
    table = paint.table(
        *columns,
        *(["key"] if has_keys else []),
        right=("run", "attempt", "age"),
        free=("task", "queue", "key"),
    )
    for each in found:
        table.add_row(
            paint.text(each.run),
            paint.text(each.task),
            paint.text(each.queue),
            paint.state(each.state),
            paint.text(each.attempt, "" if each.attempt > 1 else "dim"),
            paint.text(paint.age(each.created, now)),
            *([paint.text(each.key)] if has_keys else []),
        )
    paint.show(table)


def _hint(words: str) -> None:
    console = paint.console()
    if console.is_terminal:
        console.print()
        paint.say(words, "dim")


@click.command()
@with_target
@click.argument("run", type=RUN)
@click.option("--json", "as_json", is_flag=True, help="A JSON document, for programs.")
def show(target: Target, run: int, as_json: bool) -> None:
    """Show one RUN: where it is and why, its arguments, its result or error, its attempts."""

    async def asking(app: Rota) -> Report:
        return await _report(app, run)

    report = target.ask(asking)
    if as_json:
        document = paint.fields(report.run, stored=("args", "options", "result", "error"))
        attempts = [paint.fields(each, stored=("error",)) for each in report.attempts]
        paint.say_json({**document, "attempts": attempts})
    else:
        _print_report(report)


class Report(msgspec.Struct, frozen=True):
    """What there is to say about one run."""

    run: RunDetail
    attempts: list[AttemptLine]
    worker: WorkerLine | None
    takers: int
    now: datetime


async def _report(app: Rota, id: int) -> Report:
    from rota.store import views

    database = (await app.open()).database
    run = await database.one(views.run(id))
    if run is None:
        raise RunNotFound(f"there is no run {id}; `rota runs` lists those there are")
    worker: WorkerLine | None = None
    if run.worker is not None:
        worker = await database.one(views.worker(run.worker))
    [takers] = await database.run(views.takers(run.queue, run.task))
    [now] = await database.run(views.clock())
    return Report(run, await database.run(views.attempts(id)), worker, takers, now)


def _print_report(report: Report) -> None:
    run, console = report.run, paint.console()
    console.print(paint.text(f"run {run.run}", "bold"), paint.state(run.state), end="\n\n")

    paint.show(paint.facts(_facts(report)))

    _print_block(console, "arguments", paint.pretty(run.args))
    if run.result is not None:
        _print_block(console, "result", paint.pretty(run.result))
    if run.error is not None:
        error = json.loads(run.error)
        _print_block(console, "error", error.get("traceback") or _summary(run.error), "red")
    attempts = _attempts(report)
    if len(attempts) > 1 or report.attempts:
        console.print()
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
                paint.state(each.state),
                paint.text(each.worker),
                paint.text(paint.clock(each.at)),
                paint.text(paint.span(each.took)),
                paint.text(_summary(each.error)),
            )
        paint.show(table)


def _facts(report: Report) -> list[tuple[str, str]]:
    run, now = report.run, report.now
    facts = [("task", run.task), ("queue", run.queue)]
    if run.priority:
        facts.append(("priority", str(run.priority)))
    if run.key is not None:
        facts.append(("key", run.key))
    if run.options is not None:
        facts.append(("options", run.options.decode()))
    facts.append(("started", f"{paint.clock(run.created)}, {paint.age(run.created, now)} ago"))
    if run.expires is not None and run.finished is None:
        facts.append(("expires", paint.clock(run.expires)))
    if run.finished is not None:
        took = "" if run.took is None else f", took {paint.span(run.took)}"
        facts.append(
            ("ended", f"{paint.clock(run.finished)}, {paint.age(run.finished, now)} ago{took}")
        )
    facts.append(("attempt", str(run.attempt)))
    if run.worker is not None:
        facts.append(("worker", _worker(report)))
    if why := _why(report):
        facts.append(("why", why))
    return facts


def _worker(report: Report) -> str:
    worker = report.worker
    if worker is None:
        return f"{report.run.worker}, which has left"
    heard = "" if worker.silent < 10 else f", not heard of for {paint.span(worker.silent)}"
    return f"{worker.worker} on {worker.host}, process {worker.pid}{heard}"


def _why(report: Report) -> str | None:
    """Why it does not run now, if it does not and could."""
    run, now = report.run, report.now
    if run.state == "asleep" and run.wakes is not None:
        if run.wakes > now:
            until = f"until {paint.clock(run.wakes)}, in {paint.span((run.wakes - now).total_seconds())}"
        else:
            until = "its time has come, a worker will wake it"
        if run.attempt > 1:
            return f"attempt {run.attempt - 1} failed, the next one waits: {until}"
        return f"it was started with a delay: {until}"
    if run.state == "ready":
        if report.takers:
            workers = "a worker" if report.takers == 1 else f"{report.takers} workers"
            return f"it waits its turn; {workers} can take it"
        return (
            f"no worker is there that serves queue {run.queue!r} and knows task {run.task!r}; "
            "start one with `rota worker MODULE:APP`"
        )
    return None


def _attempts(report: Report) -> list[AttemptLine]:
    """Those that failed before, and the last one if it has ended."""
    from rota.store.views import AttemptLine

    run = report.run
    if run.finished is None:
        return report.attempts
    last = AttemptLine(run.attempt, run.state, run.worker, run.finished, run.took, run.error)
    return [*report.attempts, last]


def _summary(error: bytes | None) -> str:
    if error is None:
        return ""
    document: dict[str, Any] = json.loads(error)
    return paint.line(f"{document.get('type')}: {document.get('message')}")


def _print_block(console: Console, title: str, content: str, style: str = "") -> None:
    console.print()
    console.print(paint.text(title, "dim"))
    for each in content.rstrip().splitlines():
        console.print(paint.text(f"  {each}", style), soft_wrap=True)


@click.command()
@with_target
@click.argument("runs", metavar="RUN...", type=RUN, nargs=-1, required=True)
def cancel(target: Target, runs: tuple[int, ...]) -> None:
    """Cancel RUN: make it not happen, or ask its worker to stop it."""

    async def cancelling(app: Rota, run: int) -> None:
        answer = await app.run(run).cancel()
        match answer:
            case "cancelled":
                click.echo(f"run {run} is cancelled")
            case "requested":
                click.echo(f"run {run} is running; its worker has been asked to stop it")
            case outcome:
                raise Told(f"run {run} has {outcome} already", NOT_THERE)

    _each(target, runs, cancelling)


@click.command()
@with_target
@click.argument("runs", metavar="RUN...", type=RUN, nargs=-1, required=True)
def retry(target: Target, runs: tuple[int, ...]) -> None:
    """Try RUN once more, although it failed, expired or was cancelled."""

    async def retrying(app: Rota, run: int) -> None:
        await app.run(run).retry()
        click.echo(f"run {run} is ready to be tried again")

    _each(target, runs, retrying)


def _each(target: Target, runs: tuple[int, ...], do: Any) -> None:
    """Do it to every run; one that cannot does not spare the others, and decides the exit code."""
    from rota.cli.endings import code_of

    async def doing(app: Rota) -> int:
        code = OK
        for run in runs:
            try:
                await do(app, run)
            except RotaError as error:
                tell(str(error))
                code = code_of(error)
            except Told as error:
                tell(error.message)
                code = error.exit_code
        return code

    leave(target.ask(doing))
