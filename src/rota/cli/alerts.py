"""`rota alerts`: open and past alerts. `rota audit`: actions of operators."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, NOT_FOUND, CommandError, exit_with
from rota.cli.format import owner
from rota.cli.start import DurationParameter
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.alerts import ClosedAlert
    from rota.store.audit import AuditRow
    from rota.store.query import Query
    from rota.store.read.coordination import AlertRow


@click.group(invoke_without_command=True)
@with_target
@click.option("--all", "include_closed", is_flag=True, help="Also list closed alerts.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit with code 1 if an open alert is not acknowledged.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def alerts(target: Target, include_closed: bool, check: bool, limit: int, as_json: bool) -> None:
    """List open alerts: dead workers, queues that wait too long, late schedules.

    An alert is open while its condition holds and is closed automatically afterwards. One of the workers
    checks every ten seconds. If none has checked for a minute, this command does.
    """
    if subcommand_follows(target):
        return
    from rota.engine.alerting.evaluator import STALE_SECONDS, Evaluation
    from rota.store import alerts as rows
    from rota.store.read import coordination, runs

    async def query(app: Rota) -> tuple[list[AlertRow], datetime]:
        database = (await app.open()).database
        await Evaluation(database, (socket.gethostname(), os.getpid())).evaluate(STALE_SECONDS)
        await database.run(rows.clear_resolved())
        found = await database.run(coordination.alerts(include_closed=include_closed, limit=limit))
        [now] = await database.run(runs.database_time())
        return found, now

    found, now = target.run(query)
    if as_json:
        output.print_json([output.fields(each) for each in found])
    elif found:
        _print_alerts(found, now)
    elif include_closed:
        click.echo("no alerts yet")
    else:
        click.echo("no alert is open; list closed alerts with --all")
    if check and any(each.cleared is None and each.acknowledged_until is None for each in found):
        exit_with(FAILED)


@alerts.command()
@with_target
@click.argument("kind")
@click.argument("subject", required=False)
@click.option(
    "--for",
    "duration",
    type=DurationParameter(),
    default="8h",
    show_default=True,
    help="Duration of the acknowledgement.",
)
def ack(target: Target, kind: str, subject: str | None, duration: timedelta) -> None:
    """Acknowledge open alerts of a KIND, all or the one about SUBJECT.

    The alert stays open while its condition holds; `rota alerts --check` ignores it until the
    acknowledgement ends. The action is recorded in `rota audit`.
    """
    from rota.store import alerts as rows

    query = rows.acknowledge(kind, subject, duration.total_seconds(), owner.current_operator())
    for each in _change_alerts(target, kind, subject, query):
        click.echo(
            f"acknowledged for {output.format_duration(duration.total_seconds())}: {each.kind}: "
            f"{each.subject}"
        )


@alerts.command()
@with_target
@click.argument("kind")
@click.argument("subject", required=False)
def close(target: Target, kind: str, subject: str | None) -> None:
    """Close open alerts of a KIND, all or the one about SUBJECT.

    An alert about an event, such as a worker's death or refused completions, is not raised again. An
    alert whose condition still holds is raised again within seconds. The action is recorded in `rota
    audit`.
    """
    from rota.store import alerts as rows

    query = rows.dismiss(kind, subject, owner.current_operator())
    for each in _change_alerts(target, kind, subject, query):
        click.echo(f"closed: {each.kind}: {each.subject}")


def _change_alerts(
    target: Target, kind: str, subject: str | None, query: Query[ClosedAlert]
) -> list[ClosedAlert]:
    async def run_query(app: Rota) -> list[ClosedAlert]:
        return await (await app.open()).database.run(query)

    found = target.run(run_query)
    if not found:
        description = f"{kind!r} about {subject!r}" if subject else f"{kind!r}"
        raise CommandError(
            f"no alert {description} is open; list open alerts with `rota alerts`", NOT_FOUND
        )
    return found


def _print_alerts(found: list[AlertRow], now: datetime) -> None:
    any_closed = any(each.cleared is not None for each in found)
    columns = {
        "alert": [output.wrapped_cell(each.kind, _style(each)) for each in found],
        "age" if not any_closed else "raised": [_raised(each, now, any_closed) for each in found],
        "duration": [_duration(each) for each in found],
        "handled by": [_handled_by(each) for each in found],
        "reported by": [
            output.wrapped_cell(owner.format_process(each.host, each.pid), _closed_style(each))
            for each in found
        ],
        "message": [output.wrapped_cell(each.message, _closed_style(each)) for each in found],
    }
    owner.print_table(
        columns,
        right=("age", "raised", "duration"),
        free=("alert", "handled by", "reported by", "message"),
    )


def _handled_by(alert: AlertRow) -> Text:
    """Return the operator that acknowledged or closed the alert."""
    return output.wrapped_cell(alert.closed_by or alert.acknowledged_by or "", "dim")


def _style(alert: AlertRow) -> str:
    return "dim" if alert.cleared is not None or alert.acknowledged_until is not None else "yellow"


def _closed_style(alert: AlertRow) -> str:
    return "dim" if alert.cleared is not None else ""


def _raised(alert: AlertRow, now: datetime, any_closed: bool) -> Text:
    ago = output.format_age(alert.raised, now)
    return output.cell(f"{ago} ago" if any_closed else ago, _closed_style(alert))


def _duration(alert: AlertRow) -> Text:
    if alert.cleared is None:
        return output.cell("")
    return output.cell(
        output.format_duration((alert.cleared - alert.raised).total_seconds()), "dim"
    )


@click.command()
@with_target
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--operator", metavar="NAME", help="Only actions of this operator.")
@click.option("--action", metavar="WORDS", help="Only this action, for example 'cancel run'.")
@click.option(
    "--subject", metavar="NAME", help="Only actions on this object: a run's id, a schedule's name."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def audit(
    target: Target,
    limit: int,
    operator: str | None,
    action: str | None,
    subject: str | None,
    as_json: bool,
) -> None:
    """List actions of operators: cancelled runs, drained workers, locks released by force.

    The operator is the token's name for requests over HTTP, and the user account on the command line.
    """
    from rota.store import audit as rows
    from rota.store import ticks

    async def fetch(app: Rota) -> list[AuditRow]:
        database = (await app.open()).database
        query = rows.entries(limit, operator=operator, action=action, subject=subject)
        [[_, found]] = await database.pipeline([[ticks.set_short_timeouts(), query]])
        return found

    found = target.run(fetch)
    if as_json:
        output.print_json([output.fields(each, stored=("detail",)) for each in found])
    elif found:
        _print_audit(found)
    elif operator or action or subject:
        click.echo("no operator action matches; filters compare whole names")
    else:
        click.echo("no operator actions yet; actions such as `rota cancel RUN` are recorded here")


def _print_audit(found: list[AuditRow]) -> None:
    grid = output.new_table(
        "time",
        "operator",
        "action",
        "subject",
        "holder",
        free=("operator", "action", "subject", "holder"),
    )
    for each in found:
        grid.add_row(
            output.cell(output.format_time(each.at)),
            output.wrapped_cell(each.operator),
            output.wrapped_cell(each.action),
            output.wrapped_cell(each.subject),
            output.wrapped_cell(_holder(each)),
        )
    output.print_renderable(grid)


def _holder(entry: AuditRow) -> str:
    detail = json.loads(entry.detail)
    if "pid" not in detail:
        return ""
    holder = owner.describe(detail.get("host"), detail["pid"], detail.get("label"))
    return f"{holder}, token {detail.get('token')}"
