"""`rota leaders`: who leads, since when, and whether that is still so."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.standing import LeaderRow

FREQUENT_ELECTIONS = 5
"""Elections in an hour that are worth a look."""


@click.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def leaders(target: Target, as_json: bool) -> None:
    """List who leads under each name, in which term, and how often it was elected anew.

    A term is held by a session, which the database sees go, or through a pooler by a lease that runs out.
    Services are led under the name `service NAME`.
    """
    from rota.store import standing, views

    async def query(app: Rota) -> tuple[list[LeaderRow], datetime]:
        database = (await app.open()).database
        found = await database.run(standing.leaders())
        [now] = await database.run(views.database_time())
        return found, now

    found, now = target.run(query)
    if as_json:
        paint.print_json([{**paint.fields(each), "kind": _kind(each)} for each in found])
    elif found:
        _print_leaders(found, now)
    else:
        click.echo(
            'nobody has ever led; `app.leader("name")` stands for election, and so does a service'
        )


def _kind(leader: LeaderRow) -> str | None:
    if leader.instance is None:
        return None
    return "session" if leader.expires is None else "lease"


def _print_leaders(found: list[LeaderRow], now: datetime) -> None:
    columns = {
        "name": [paint.wrapped_cell(each.name) for each in found],
        "term": [paint.cell(each.term) for each in found],
        **whom.columns("leader", found),
        "age": [_age(each, now) for each in found],
        "kind": [paint.cell(_kind(each)) for each in found],
        "state": [_state(each, now) for each in found],
        "elections": [_elections(each) for each in found],
    }
    whom.print_table(
        columns, right=("term", "process", "age", "elections"), free=("name", "leader", "host")
    )
    paint.hint("elections: within the last hour")


def _age(leader: LeaderRow, now: datetime) -> Text:
    alive = leader.alive and leader.since is not None
    return paint.cell(paint.format_age(leader.since, now) if alive and leader.since else "")


def _state(leader: LeaderRow, now: datetime) -> Text:
    if leader.instance is None:
        return paint.cell("resigned", "dim")
    if leader.alive:
        return paint.cell("leading", "green")
    if leader.expires is not None:
        return paint.cell(f"expired {paint.format_age(leader.expires, now)} ago", "yellow")
    return paint.cell("session ended", "yellow")


def _elections(leader: LeaderRow) -> Text:
    more = "+" if leader.or_more else ""
    style = "yellow" if leader.elections >= FREQUENT_ELECTIONS else ""
    return paint.cell(f"{leader.elections}{more}", style)
