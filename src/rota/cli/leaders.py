"""`rota leaders`: the leader of each name, its term and state."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.format import owner
from rota.cli.table import Column, Table, json_option, list_command
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota.operations.coordination import LeaderList
    from rota.store.read.coordination import LeaderRow

FREQUENT_ELECTIONS = 5
"""Elections per hour from which the number is highlighted."""


@click.command()
@with_target
@json_option
def leaders(target: Target, as_json: bool) -> None:
    """List the leader of each name, its term, and the number of recent elections.

    A term is held by a database session, or through a pooler by a lease that expires. The leader name of
    a service is `service NAME`.
    """
    from rota.operations.coordination import list_leaders

    list_command(target, list_leaders, _print_leaders, as_json=as_json)


def _print_leaders(document: LeaderList, now: datetime) -> None:
    if not document.leaders:
        click.echo('no leaders yet; `app.leader("name")` and services stand for election')
        return
    Table["LeaderRow"](
        Column("name", lambda row, now: row.name, wraps=True),
        Column("term", lambda row, now: row.term, right=True),
        *owner.columns("leader", document.leaders),
        Column("age", _age, right=True),
        Column("kind", lambda row, now: _kind(row)),
        Column("state", _state, _state_style),
        Column(
            "elections",
            lambda row, now: f"{row.elections}{'+' if row.or_more else ''}",
            lambda row: "yellow" if row.elections >= FREQUENT_ELECTIONS else "",
            right=True,
        ),
    ).print(document.leaders, now)
    output.hint("elections: within the last hour")


def _kind(leader: LeaderRow) -> str | None:
    if leader.instance is None:
        return None
    return "session" if leader.expires is None else "lease"


def _age(leader: LeaderRow, now: datetime) -> str:
    if not leader.alive or leader.since is None:
        return ""
    return output.format_age(leader.since, now)


def _state(leader: LeaderRow, now: datetime) -> str:
    if leader.instance is None:
        return "resigned"
    if leader.alive:
        return "leading"
    if leader.expires is not None:
        return f"expired {output.format_age(leader.expires, now)} ago"
    return "session ended"


def _state_style(leader: LeaderRow) -> str:
    if leader.instance is None:
        return "dim"
    return "green" if leader.alive else "yellow"
