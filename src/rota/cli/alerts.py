"""`rota alerts`: what somebody should look at, and what there was. `rota audit`: what people did."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.endings import FAILED, NOT_THERE, Told, leave
from rota.cli.start import Span
from rota.cli.target import Target, goes_on, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.alerts import Closed
    from rota.store.audit import Entry
    from rota.store.query import Query
    from rota.store.standing import AlertLine


@click.group(invoke_without_command=True)
@with_target
@click.option("--all", "over", is_flag=True, help="Also those that are over.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit code 1 if one is open that nobody has acknowledged, for scripts.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def alerts(target: Target, over: bool, check: bool, limit: int, as_json: bool) -> None:
    """List what somebody should look at: workers that died, queues that wait, schedules that are late.

    An alert is open while it is so, and closed by whoever sees that it no longer is. Workers look every ten
    seconds, one for all; where none has for a minute, this command does.
    """
    if goes_on(target):
        return
    from rota.engine.watchman import FORGOTTEN, Round
    from rota.store import alerts as rows
    from rota.store import standing, views

    async def asking(app: Rota) -> tuple[list[AlertLine], datetime]:
        database = (await app.open()).database
        await Round(database, (socket.gethostname(), os.getpid())).make(FORGOTTEN)
        await database.run(rows.settle())
        found = await database.run(standing.alerts(over=over, limit=limit))
        [now] = await database.run(views.clock())
        return found, now

    found, now = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each) for each in found])
    elif found:
        _print_alerts(found, now)
    elif over:
        click.echo("there has never been an alert")
    else:
        click.echo("no alert is open (those that are over: --all)")
    if check and any(each.cleared is None and each.acknowledged is None for each in found):
        leave(FAILED)


@alerts.command()
@with_target
@click.argument("kind")
@click.argument("subject", required=False)
@click.option(
    "--for", "span", type=Span(), default="8h", show_default=True, help="Until when you see to it."
)
def ack(target: Target, kind: str, subject: str | None, span: timedelta) -> None:
    """Say of open alerts of a KIND, all or the one about SUBJECT, that you see to it.

    It stays open until it is no longer so; `rota alerts --check` passes it by for that time. Who did so is
    written down: `rota audit`.
    """
    from rota.store import alerts as rows

    query = rows.acknowledge(kind, subject, span.total_seconds(), whom.operator())
    for each in _asked(target, kind, subject, query):
        click.echo(
            f"acknowledged for {paint.span(span.total_seconds())}: {each.kind}: {each.subject}"
        )


@alerts.command()
@with_target
@click.argument("kind")
@click.argument("subject", required=False)
def close(target: Target, kind: str, subject: str | None) -> None:
    """Close open alerts of a KIND, all or the one about SUBJECT: it has been seen to.

    What has happened, a worker's death, refused completions, is not told again. What still is so, is:
    within seconds. Who did so is written down: `rota audit`.
    """
    from rota.store import alerts as rows

    query = rows.dismiss(kind, subject, whom.operator())
    for each in _asked(target, kind, subject, query):
        click.echo(f"closed: {each.kind}: {each.subject}")


def _asked(target: Target, kind: str, subject: str | None, query: Query[Closed]) -> list[Closed]:
    async def asking(app: Rota) -> list[Closed]:
        return await (await app.open()).database.run(query)

    found = target.ask(asking)
    if not found:
        what = f"{kind!r} about {subject!r}" if subject else f"{kind!r}"
        raise Told(f"no alert {what} is open; `rota alerts` lists those that are", NOT_THERE)
    return found


def _print_alerts(found: list[AlertLine], now: datetime) -> None:
    over = any(each.cleared is not None for each in found)
    columns = {
        "alert": [paint.whole(each.kind, _style(each)) for each in found],
        "for" if not over else "raised": [_raised(each, now, over) for each in found],
        "lasted": [_lasted(each) for each in found],
        "seen by": [_seen(each) for each in found],
        "told by": [paint.whole(whom.place(each.host, each.pid), _quiet(each)) for each in found],
        "what": [paint.whole(each.message, _quiet(each)) for each in found],
    }
    whom.show(
        columns, right=("for", "raised", "lasted"), free=("alert", "seen by", "told by", "what")
    )


def _seen(alert: AlertLine) -> Text:
    """Who sees to it, or has closed it."""
    return paint.whole(alert.closed_by or alert.who or "", "dim")


def _style(alert: AlertLine) -> str:
    return "dim" if alert.cleared is not None or alert.acknowledged is not None else "yellow"


def _quiet(alert: AlertLine) -> str:
    return "dim" if alert.cleared is not None else ""


def _raised(alert: AlertLine, now: datetime, over: bool) -> Text:
    ago = paint.age(alert.raised, now)
    return paint.text(f"{ago} ago" if over else ago, _quiet(alert))


def _lasted(alert: AlertLine) -> Text:
    if alert.cleared is None:
        return paint.text("")
    return paint.text(paint.span((alert.cleared - alert.raised).total_seconds()), "dim")


@click.command()
@with_target
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--who", metavar="NAME", help="By whom.")
@click.option("--action", metavar="WORDS", help="What was done, 'cancel run' for one.")
@click.option("--subject", metavar="NAME", help="To what: a run's number, a schedule's name.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def audit(
    target: Target,
    limit: int,
    who: str | None,
    action: str | None,
    subject: str | None,
    as_json: bool,
) -> None:
    """List what people did by hand, and who: runs cancelled, workers drained, locks taken from whom.

    Over HTTP it is whoever the token belongs to, on the command line the account.
    """
    from rota.store import audit as rows
    from rota.store import ticks

    async def asking(app: Rota) -> list[Entry]:
        database = (await app.open()).database
        query = rows.entries(limit, who=who, action=action, subject=subject)
        [[_, found]] = await database.exchange([[ticks.hurry(), query]])
        return found

    found = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each, stored=("detail",)) for each in found])
    elif found:
        _print_audit(found)
    elif who or action or subject:
        click.echo("nothing like that was done by hand; names are looked for whole")
    else:
        click.echo("nothing was done by hand; `rota cancel RUN` would be written down here")


def _print_audit(found: list[Entry]) -> None:
    table = paint.table("at", "who", "did", "to", "held by", free=("who", "did", "to", "held by"))
    for each in found:
        table.add_row(
            paint.text(paint.clock(each.at)),
            paint.whole(each.who),
            paint.whole(each.action),
            paint.whole(each.subject),
            paint.whole(_whose(each)),
        )
    paint.show(table)


def _whose(entry: Entry) -> str:
    detail = json.loads(entry.detail)
    if "pid" not in detail:
        return ""
    who = whom.told(detail.get("host"), detail["pid"], detail.get("label"))
    return f"{who}, token {detail.get('token')}"
