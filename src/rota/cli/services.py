"""`rota services`: the instance that runs each service, the candidates, and the iterations."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.format import owner
from rota.cli.format.wait import format_short_time
from rota.cli.table import Column, Table, json_option, limit_option, list_command
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota.operations.coordination import ServiceDetail, ServiceList
    from rota.store.read.coordination import IterationRow, ServiceRow

OUTCOME_STYLES = {
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "dim",
    "lost": "yellow",
}
FAILURES = ("failed", "lost")


@click.group(invoke_without_command=True)
@with_target
@json_option
def services(target: Target, as_json: bool) -> None:
    """List the services: running instance, standbys and last iteration."""
    if subcommand_follows(target):
        return
    from rota.operations.coordination import list_services

    list_command(target, list_services, _print_services, as_json=as_json)


def _print_services(document: ServiceList, now: datetime) -> None:
    found = document.services
    if not found:
        click.echo(
            'no services yet; declare one with `@app.service("name", every=60)`; a worker runs it'
        )
        return
    (NARROW_SERVICES if owner.is_narrow() else SERVICES).print(found, now)
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


def _every(service: ServiceRow, now: datetime) -> str:
    return "" if service.every is None else output.format_duration(service.every)


def _instance(service: ServiceRow, now: datetime) -> str:
    return "none" if service.host is None else owner.format_process(service.host, service.pid)


def _last(service: ServiceRow, now: datetime) -> str:
    if service.iteration is None or service.started is None:
        return ""
    return f"#{service.iteration} {output.format_age(service.started, now)} ago"


def _outcome(row: ServiceRow | IterationRow, *, running: bool) -> str:
    if row.started is None:
        return ""
    return row.outcome or ("running" if running and row.ended is None else "not known")


def _service_outcome(service: ServiceRow, now: datetime) -> str:
    outcome = _outcome(service, running=service.host is not None)
    failures = service.failures
    return f"{outcome} {failures} times" if failures > 1 and outcome in FAILURES else outcome


def _outcome_style(outcome: str) -> str:
    return OUTCOME_STYLES.get(outcome, "yellow")


def _duration(row: ServiceRow | IterationRow, now: datetime) -> str:
    if row.started is None or row.ended is None or row.outcome == "lost":
        return ""
    return output.format_duration((row.ended - row.started).total_seconds())


def _next(service: ServiceRow, now: datetime) -> str:
    if service.due is None:
        return ""
    return "due" if service.due <= now else f"in {output.format_age(now, service.due)}"


_FIRST: tuple[Column[ServiceRow], ...] = (
    Column("service", lambda row, now: row.name, wraps=True),
    Column("every", _every, right=True),
    Column("instance", _instance, lambda row: "" if row.host else "yellow", wraps=True),
)
_LAST: tuple[Column[ServiceRow], ...] = (
    Column("last", _last),
    Column(
        "outcome",
        _service_outcome,
        lambda row: _outcome_style(_outcome(row, running=row.host is not None)),
    ),
)
_NEXT: Column[ServiceRow] = Column(
    "next", _next, lambda row: "" if row.host else "yellow", right=True
)
SERVICES = Table["ServiceRow"](
    *_FIRST,
    Column(
        "standby",
        lambda row, now: ", ".join(row.standing_by) or "none",
        lambda row: "" if row.standing_by else "dim",
        wraps=True,
    ),
    *_LAST,
    Column("duration", _duration, right=True),
    _NEXT,
)
NARROW_SERVICES = Table["ServiceRow"](
    *_FIRST, Column("standbys", lambda row, now: len(row.standing_by), right=True), *_LAST, _NEXT
)


@services.command()
@with_target
@click.argument("name")
@limit_option(20, 1000)
@json_option
def show(target: Target, name: str, limit: int, as_json: bool) -> None:
    """Show one service and its latest iterations: instance, duration and outcome."""
    from rota.operations.coordination import show_service

    query = {"limit": limit}
    list_command(target, show_service, _print_service, as_json=as_json, query=query, name=name)


def _print_service(service: ServiceDetail, now: datetime) -> None:
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
    if next_iteration := _next(service, now):
        properties.append(("next", next_iteration))
    output.print_renderable(output.property_table(properties))
    click.echo()
    if not service.iterations:
        output.print_text("it has never run")
        return

    def outcome(row: IterationRow) -> str:
        is_running = service.host is not None and row is service.iterations[0]
        return _outcome(row, running=is_running)

    Table["IterationRow"](
        Column("iteration", lambda row, now: row.number, right=True),
        Column("term", lambda row, now: row.term, right=True),
        Column("instance", lambda row, now: owner.format_process(row.host, row.pid), wraps=True),
        Column("started", lambda row, now: format_short_time(row.started, now)),
        Column("duration", _duration, right=True),
        Column("outcome", lambda row, now: outcome(row), lambda row: _outcome_style(outcome(row))),
        Column("error", lambda row, now: output.error_summary(row.error), wraps=True),
    ).print(service.iterations, now)
