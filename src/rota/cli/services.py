"""`rota services`: which instance runs each, which stand by, and how its iterations go."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.endings import NOT_THERE, Told
from rota.cli.target import Target, goes_on, with_target
from rota.cli.waits import moment

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.standing import IterationLine, ServiceLine

OUTCOMES = {
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "dim",
    "lost": "yellow",
}


@click.group(invoke_without_command=True)
@with_target
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def services(target: Target, as_json: bool) -> None:
    """List the services: who runs each, who stands by, how its last iteration went."""
    if goes_on(target):
        return
    from rota.store import standing, views

    async def asking(app: Rota) -> tuple[list[ServiceLine], datetime]:
        database = (await app.open()).database
        found = await database.run(standing.services())
        [now] = await database.run(views.clock())
        return found, now

    found, now = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each, stored=("error",)) for each in found])
    elif found:
        _print_services(found, now)
    else:
        click.echo(
            'no service is known; `@app.service("name", every=60)` makes one, and a worker runs it'
        )


def _print_services(found: list[ServiceLine], now: datetime) -> None:
    columns = {
        "service": [paint.whole(each.name) for each in found],
        "every": [_every(each) for each in found],
        "runs on": [_runner(each) for each in found],
        "standing by": [_standing_by(each) for each in found],
        "last": [_last(each, now) for each in found],
        "outcome": [_outcome(each, running=each.host is not None) for each in found],
        "took": [_took(each) for each in found],
        "next": [_next(each, now) for each in found],
    }
    if whom.is_narrow():
        columns["by"] = [paint.text(len(each.standing_by)) for each in found]
        order = ("service", "every", "runs on", "by", "last", "outcome", "next")
        columns = {name: columns[name] for name in order}
    whom.show(
        columns, right=("every", "by", "took", "next"), free=("service", "runs on", "standing by")
    )
    for each in found:
        if each.host is None:
            then = (
                "one that stands by takes it within seconds"
                if each.standing_by
                else "no instance that knows it is there"
            )
            paint.say(f"nobody runs service {each.name!r}: {then}", "yellow")
    if whom.is_narrow():
        paint.hint("by: how many instances stand by; in a wider terminal, or with --json, which")


def _every(service: ServiceLine) -> Text:
    return paint.text("" if service.every is None else paint.span(service.every))


def _runner(service: ServiceLine) -> Text:
    if service.host is None:
        return paint.text("nobody", "yellow")
    return paint.whole(whom.place(service.host, service.pid))


def _standing_by(service: ServiceLine) -> Text:
    if not service.standing_by:
        return paint.text("nobody", "dim")
    return paint.whole(", ".join(service.standing_by))


def _last(service: ServiceLine, now: datetime) -> Text:
    if service.iteration is None or service.started is None:
        return paint.text("")
    return paint.text(f"#{service.iteration} {paint.age(service.started, now)} ago")


def _outcome(line: ServiceLine | IterationLine, *, running: bool) -> Text:
    if line.started is None:
        return paint.text("")
    word = line.outcome or ("running" if running and line.ended is None else "not known")
    failures = getattr(line, "failures", 0)
    times = f" {failures} times" if failures > 1 and word in ("failed", "lost") else ""
    return paint.text(f"{word}{times}", OUTCOMES.get(word, "yellow"))


def _took(line: ServiceLine | IterationLine) -> Text:
    if line.started is None or line.ended is None or line.outcome == "lost":
        return paint.text("")
    return paint.text(paint.span((line.ended - line.started).total_seconds()))


def _next(service: ServiceLine, now: datetime) -> Text:
    if service.due is None:
        return paint.text("")
    if service.due <= now:
        return paint.text("due", "" if service.host else "yellow")
    return paint.text(f"in {paint.age(now, service.due)}")


@services.command()
@with_target
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON document, for programs.")
def show(target: Target, name: str, limit: int, as_json: bool) -> None:
    """Show one service, and its last iterations: by whom, how long, what became of each."""

    async def asking(app: Rota) -> tuple[ServiceLine, list[IterationLine], datetime]:
        from rota.store import standing, views

        database = (await app.open()).database
        service = await database.one(standing.services(name))
        if service is None:
            raise Told(
                f"there is no service {name!r}; `rota services` lists those there are", NOT_THERE
            )
        iterations = await database.run(standing.iterations(name, limit))
        [now] = await database.run(views.clock())
        return service, iterations, now

    service, iterations, now = target.ask(asking)
    if as_json:
        paint.say_json(
            {
                **paint.fields(service, stored=("error",)),
                "iterations": [paint.fields(each, stored=("error",)) for each in iterations],
            }
        )
        return
    _print_service(service, now)
    click.echo()
    if iterations:
        _print_iterations(iterations, service, now)
    else:
        paint.say("it has never run")


def _print_service(service: ServiceLine, now: datetime) -> None:
    facts: list[tuple[str, Text | str]] = [("service", service.name)]
    if service.every is not None:
        facts.append(("every", paint.span(service.every)))
    if service.host is None:
        facts.append(("runs on", paint.text("nobody", "yellow")))
    else:
        since = "" if service.since is None else f", for {paint.age(service.since, now)}"
        facts.append(("runs on", f"{whom.place(service.host, service.pid)}{since}"))
    facts.append(("standing by", ", ".join(service.standing_by) or paint.text("nobody", "dim")))
    if service.failures:
        facts.append(("failures", paint.text(f"{service.failures} in a row", "red")))
    following = _next(service, now)
    if following.plain:
        facts.append(("next", following))
    paint.show(paint.facts(facts))


def _print_iterations(found: list[IterationLine], service: ServiceLine, now: datetime) -> None:
    columns = {
        "iteration": [paint.text(each.number) for each in found],
        "term": [paint.text(each.term) for each in found],
        "ran on": [paint.whole(whom.place(each.host, each.pid)) for each in found],
        "started": [paint.text(moment(each.started, now)) for each in found],
        "took": [_took(each) for each in found],
        "outcome": [
            _outcome(each, running=service.host is not None and number == 0)
            for number, each in enumerate(found)
        ],
        "error": [paint.whole(paint.summary(each.error)) for each in found],
    }
    whom.show(columns, right=("iteration", "term", "took"), free=("ran on", "error"))
