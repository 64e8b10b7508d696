"""`rota services`: the instance that runs each service, the candidates, and the iterations."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, CommandError
from rota.cli.format import owner
from rota.cli.format.wait import format_short_time
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.read.coordination import IterationRow, ServiceRow

OUTCOME_STYLES = {
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "dim",
    "lost": "yellow",
}


@click.group(invoke_without_command=True)
@with_target
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def services(target: Target, as_json: bool) -> None:
    """List the services: running instance, standbys and last iteration."""
    if subcommand_follows(target):
        return
    from rota.store.read import coordination, runs

    async def query(app: Rota) -> tuple[list[ServiceRow], datetime]:
        database = (await app.open()).database
        found = await database.run(coordination.services())
        [now] = await database.run(runs.database_time())
        return found, now

    found, now = target.run(query)
    if as_json:
        output.print_json([output.fields(each, stored=("error",)) for each in found])
    elif found:
        _print_services(found, now)
    else:
        click.echo(
            'no services yet; declare one with `@app.service("name", every=60)`; a worker runs it'
        )


def _print_services(found: list[ServiceRow], now: datetime) -> None:
    columns = {
        "service": [output.wrapped_cell(each.name) for each in found],
        "every": [_every(each) for each in found],
        "instance": [_runner(each) for each in found],
        "standby": [_standing_by(each) for each in found],
        "last": [_last(each, now) for each in found],
        "outcome": [_outcome(each, running=each.host is not None) for each in found],
        "duration": [_duration(each) for each in found],
        "next": [_next(each, now) for each in found],
    }
    if owner.is_narrow():
        columns["standbys"] = [output.cell(len(each.standing_by)) for each in found]
        order = ("service", "every", "instance", "standbys", "last", "outcome", "next")
        columns = {name: columns[name] for name in order}
    owner.print_table(
        columns,
        right=("every", "standbys", "duration", "next"),
        free=("service", "instance", "standby"),
    )
    for each in found:
        if each.host is None:
            consequence = (
                "a standby instance takes it within seconds"
                if each.standing_by
                else "none of the running instances has it"
            )
            output.print_text(f"no instance runs service {each.name!r}: {consequence}", "yellow")
    if owner.is_narrow():
        output.hint("standbys: number of standby instances; a wider terminal or --json names them")


def _every(service: ServiceRow) -> Text:
    return output.cell("" if service.every is None else output.format_duration(service.every))


def _runner(service: ServiceRow) -> Text:
    if service.host is None:
        return output.cell("none", "yellow")
    return output.wrapped_cell(owner.format_process(service.host, service.pid))


def _standing_by(service: ServiceRow) -> Text:
    if not service.standing_by:
        return output.cell("none", "dim")
    return output.wrapped_cell(", ".join(service.standing_by))


def _last(service: ServiceRow, now: datetime) -> Text:
    if service.iteration is None or service.started is None:
        return output.cell("")
    return output.cell(f"#{service.iteration} {output.format_age(service.started, now)} ago")


def _outcome(row: ServiceRow | IterationRow, *, running: bool) -> Text:
    if row.started is None:
        return output.cell("")
    outcome = row.outcome or ("running" if running and row.ended is None else "not known")
    failures = getattr(row, "failures", 0)
    times = f" {failures} times" if failures > 1 and outcome in ("failed", "lost") else ""
    return output.cell(f"{outcome}{times}", OUTCOME_STYLES.get(outcome, "yellow"))


def _duration(row: ServiceRow | IterationRow) -> Text:
    if row.started is None or row.ended is None or row.outcome == "lost":
        return output.cell("")
    return output.cell(output.format_duration((row.ended - row.started).total_seconds()))


def _next(service: ServiceRow, now: datetime) -> Text:
    if service.due is None:
        return output.cell("")
    if service.due <= now:
        return output.cell("due", "" if service.host else "yellow")
    return output.cell(f"in {output.format_age(now, service.due)}")


@services.command()
@with_target
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def show(target: Target, name: str, limit: int, as_json: bool) -> None:
    """Show one service and its latest iterations: instance, duration and outcome."""

    async def query(app: Rota) -> tuple[ServiceRow, list[IterationRow], datetime]:
        from rota.store.read import coordination, runs

        database = (await app.open()).database
        service = await database.fetch_one(coordination.services(name))
        if service is None:
            raise CommandError(
                f"there is no service {name!r}; list the services with `rota services`", NOT_FOUND
            )
        iterations = await database.run(coordination.iterations(name, limit))
        [now] = await database.run(runs.database_time())
        return service, iterations, now

    service, iterations, now = target.run(query)
    if as_json:
        output.print_json(
            {
                **output.fields(service, stored=("error",)),
                "iterations": [output.fields(each, stored=("error",)) for each in iterations],
            }
        )
        return
    _print_service(service, now)
    click.echo()
    if iterations:
        _print_iterations(iterations, service, now)
    else:
        output.print_text("it has never run")


def _print_service(service: ServiceRow, now: datetime) -> None:
    properties: list[tuple[str, Text | str]] = [("service", service.name)]
    if service.every is not None:
        properties.append(("every", output.format_duration(service.every)))
    if service.host is None:
        properties.append(("instance", output.cell("none", "yellow")))
    else:
        since = "" if service.since is None else f", for {output.format_age(service.since, now)}"
        properties.append(("instance", f"{owner.format_process(service.host, service.pid)}{since}"))
    properties.append(("standby", ", ".join(service.standing_by) or output.cell("none", "dim")))
    if service.failures:
        properties.append(("failures", output.cell(f"{service.failures} in a row", "red")))
    next_cell = _next(service, now)
    if next_cell.plain:
        properties.append(("next", next_cell))
    output.print_renderable(output.property_table(properties))


def _print_iterations(found: list[IterationRow], service: ServiceRow, now: datetime) -> None:
    columns = {
        "iteration": [output.cell(each.number) for each in found],
        "term": [output.cell(each.term) for each in found],
        "instance": [
            output.wrapped_cell(owner.format_process(each.host, each.pid)) for each in found
        ],
        "started": [output.cell(format_short_time(each.started, now)) for each in found],
        "duration": [_duration(each) for each in found],
        "outcome": [
            _outcome(each, running=service.host is not None and number == 0)
            for number, each in enumerate(found)
        ],
        "error": [output.wrapped_cell(output.error_summary(each.error)) for each in found],
    }
    owner.print_table(columns, right=("iteration", "term", "duration"), free=("instance", "error"))
