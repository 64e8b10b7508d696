"""`rota alerts`: open and past alerts. `rota audit`: actions of operators."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, exit_with
from rota.cli.format import owner
from rota.cli.start import DurationParameter
from rota.cli.table import Column, Table, json_option, limit_option, list_command
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from rota.operations.access import AuditPage
    from rota.operations.alerts import AlertList
    from rota.store.audit import AuditRow
    from rota.store.read.coordination import AlertRow


@click.group(invoke_without_command=True)
@with_target
@click.option("--all", "include_closed", is_flag=True, help="Also list closed alerts.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit with code 1 if an open alert is not acknowledged.",
)
@limit_option(50)
@json_option
def alerts(target: Target, include_closed: bool, check: bool, limit: int, as_json: bool) -> None:
    """List open alerts: dead workers, queues that wait too long, late schedules.

    An alert is open while its condition holds and is closed automatically afterwards. One of the workers
    checks every ten seconds. If none has checked for a minute, this command does.
    """
    if subcommand_follows(target):
        return
    from rota.operations.alerts import list_alerts

    def show(document: AlertList, now: datetime) -> None:
        if document.alerts:
            _print_alerts(document.alerts, now)
        elif include_closed:
            click.echo("no alerts yet")
        else:
            click.echo("no alert is open; list closed alerts with --all")

    query = {"include_closed": include_closed, "limit": limit}
    found = list_command(target, list_alerts, show, as_json=as_json, query=query).alerts
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
    from rota.operations.alerts import AcknowledgeAlertRequest, acknowledge_alerts

    seconds = duration.total_seconds()
    body = AcknowledgeAlertRequest(kind, subject, seconds)
    document, _ = target.perform(acknowledge_alerts, body=body)
    for each in document.alerts:
        click.echo(
            f"acknowledged for {output.format_duration(seconds)}: {each.kind}: {each.subject}"
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
    from rota.operations.alerts import DismissAlertRequest, dismiss_alerts

    document, _ = target.perform(dismiss_alerts, body=DismissAlertRequest(kind, subject))
    for each in document.alerts:
        click.echo(f"closed: {each.kind}: {each.subject}")


def _print_alerts(found: list[AlertRow], now: datetime) -> None:
    any_closed = any(each.cleared is not None for each in found)

    def raised(alert: AlertRow, now: datetime) -> str:
        ago = output.format_age(alert.raised, now)
        return f"{ago} ago" if any_closed else ago

    Table["AlertRow"](
        Column("alert", lambda row, now: row.kind, _style, wraps=True),
        Column("raised" if any_closed else "age", raised, _closed_style, right=True),
        Column("duration", _duration, "dim", right=True),
        # The operator that acknowledged or closed the alert.
        Column(
            "handled by", lambda row, now: row.closed_by or row.acknowledged_by, "dim", wraps=True
        ),
        Column(
            "reported by",
            lambda row, now: owner.format_process(row.host, row.pid),
            _closed_style,
            wraps=True,
        ),
        Column("message", lambda row, now: row.message, _closed_style, wraps=True),
    ).print(found, now)


def _style(alert: AlertRow) -> str:
    return "dim" if alert.cleared is not None or alert.acknowledged_until is not None else "yellow"


def _closed_style(alert: AlertRow) -> str:
    return "dim" if alert.cleared is not None else ""


def _duration(alert: AlertRow, now: datetime) -> str:
    if alert.cleared is None:
        return ""
    return output.format_duration((alert.cleared - alert.raised).total_seconds())


@click.command()
@with_target
@limit_option(20)
@click.option("--operator", metavar="NAME", help="Only actions of this operator.")
@click.option("--action", metavar="WORDS", help="Only this action, for example 'cancel run'.")
@click.option(
    "--subject", metavar="NAME", help="Only actions on this object: a run's id, a schedule's name."
)
@json_option
def audit(target: Target, limit: int, as_json: bool, **criteria: str | None) -> None:
    """List actions of operators: cancelled runs, drained workers, locks released by force.

    The operator is the token's name for requests over HTTP, and the user account on the command line.
    """
    from rota.operations.access import list_audit

    def show(document: AuditPage, now: datetime) -> None:
        if document.entries:
            AUDIT.print(document.entries, now)
        elif any(criteria.values()):
            click.echo("no operator action matches; filters compare whole names")
        else:
            click.echo(
                "no operator actions yet; actions such as `rota cancel RUN` are recorded here"
            )

    query = {**criteria, "limit": limit}
    list_command(target, list_audit, show, as_json=as_json, query=query)


def _holder(entry: AuditRow, now: datetime) -> str:
    detail = json.loads(bytes(entry.detail))
    if "pid" not in detail:
        return ""
    holder = owner.describe(detail.get("host"), detail["pid"], detail.get("label"))
    return f"{holder}, token {detail.get('token')}"


AUDIT = Table["AuditRow"](
    Column("time", lambda row, now: output.format_time(row.at)),
    Column("operator", lambda row, now: row.operator, wraps=True),
    Column("action", lambda row, now: row.action, wraps=True),
    Column("subject", lambda row, now: row.subject, wraps=True),
    Column("holder", _holder, wraps=True),
)
