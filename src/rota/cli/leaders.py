"""`rota leaders`: the leader of each name, its term and state."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.format import owner
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.read.coordination import LeaderRow

FREQUENT_ELECTIONS = 5
"""Elections per hour from which the number is highlighted."""


@click.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def leaders(target: Target, as_json: bool) -> None:
    """List the leader of each name, its term, and the number of recent elections.

    A term is held by a database session, or through a pooler by a lease that expires. The leader name of
    a service is `service NAME`.
    """
    from rota.store.read import coordination, runs

    async def query(app: Rota) -> tuple[list[LeaderRow], datetime]:
        database = (await app.open()).database
        found = await database.run(coordination.leaders())
        [now] = await database.run(runs.database_time())
        return found, now

    found, now = target.run(query)
    if as_json:
        output.print_json([{**output.fields(each), "kind": _kind(each)} for each in found])
    elif found:
        _print_leaders(found, now)
    else:
        click.echo('no leaders yet; `app.leader("name")` and services stand for election')


def _kind(leader: LeaderRow) -> str | None:
    if leader.instance is None:
        return None
    return "session" if leader.expires is None else "lease"


def _print_leaders(found: list[LeaderRow], now: datetime) -> None:
    columns = {
        "name": [output.wrapped_cell(each.name) for each in found],
        "term": [output.cell(each.term) for each in found],
        **owner.columns("leader", found),
        "age": [_age(each, now) for each in found],
        "kind": [output.cell(_kind(each)) for each in found],
        "state": [_state(each, now) for each in found],
        "elections": [_elections(each) for each in found],
    }
    owner.print_table(
        columns, right=("term", "process", "age", "elections"), free=("name", "leader", "host")
    )
    output.hint("elections: within the last hour")


def _age(leader: LeaderRow, now: datetime) -> Text:
    alive = leader.alive and leader.since is not None
    return output.cell(output.format_age(leader.since, now) if alive and leader.since else "")


def _state(leader: LeaderRow, now: datetime) -> Text:
    if leader.instance is None:
        return output.cell("resigned", "dim")
    if leader.alive:
        return output.cell("leading", "green")
    if leader.expires is not None:
        return output.cell(f"expired {output.format_age(leader.expires, now)} ago", "yellow")
    return output.cell("session ended", "yellow")


def _elections(leader: LeaderRow) -> Text:
    more = "+" if leader.or_more else ""
    style = "yellow" if leader.elections >= FREQUENT_ELECTIONS else ""
    return output.cell(f"{leader.elections}{more}", style)
