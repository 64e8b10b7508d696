"""`rota alerts`: what somebody should look at, and what there was. `rota audit`: what people did."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.endings import FAILED, leave
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.audit import Entry
    from rota.store.standing import AlertLine


@click.command()
@with_target
@click.option("--all", "over", is_flag=True, help="Also those that are over.")
@click.option("--check", is_flag=True, help="Exit code 1 if one is open, for scripts.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def alerts(target: Target, over: bool, check: bool, limit: int, as_json: bool) -> None:
    """List what somebody should look at: locks held too long, renewals that fail, leaders that flap.

    An alert is open while it is so. One whose process died is closed when it is no longer so, at the latest
    by whoever lists them.
    """
    from rota.store import alerts as rows
    from rota.store import standing, views

    async def asking(app: Rota) -> tuple[list[AlertLine], datetime]:
        database = (await app.open()).database
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
    if check and any(each.cleared is None for each in found):
        leave(FAILED)


def _print_alerts(found: list[AlertLine], now: datetime) -> None:
    over = any(each.cleared is not None for each in found)
    columns = {
        "alert": [paint.whole(each.kind, _style(each)) for each in found],
        "for" if not over else "raised": [_raised(each, now, over) for each in found],
        "lasted": [_lasted(each) for each in found],
        "told by": [paint.whole(whom.place(each.host, each.pid), _quiet(each)) for each in found],
        "what": [paint.whole(each.message, _quiet(each)) for each in found],
    }
    whom.show(columns, right=("for", "raised", "lasted"), free=("alert", "told by", "what"))


def _style(alert: AlertLine) -> str:
    return "dim" if alert.cleared is not None else "yellow"


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
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def audit(target: Target, limit: int, as_json: bool) -> None:
    """List what people did by hand: which locks were taken from whom, by whom."""
    from rota.store import audit as rows

    async def asking(app: Rota) -> list[Entry]:
        return await (await app.open()).database.run(rows.entries(limit))

    found = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each, stored=("detail",)) for each in found])
    elif found:
        _print_audit(found)
    else:
        click.echo("nothing was done by hand; `rota locks release NAME` would be written down here")


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
