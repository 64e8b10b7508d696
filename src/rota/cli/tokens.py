"""`rota tokens`: access tokens of the HTTP API and their roles."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import print_note
from rota.cli.format import owner
from rota.cli.start import DurationParameter
from rota.cli.table import Column, Table, json_option, list_command
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.operations.access import TokenList
    from rota.store.tokens import TokenRow

ROLES = ("viewer", "operator", "admin")
NEVER = "never"
MAX_TOKENS = 10_000

all_option = click.option(
    "--all", "include_inactive", is_flag=True, help="Also list expired and revoked tokens."
)


class LifetimeParameter(DurationParameter):
    """Duration, or `never`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        return timedelta.max if value == NEVER else super().convert(value, param, ctx)


@click.group(invoke_without_command=True)
@with_target
@all_option
@json_option
def tokens(target: Target, include_inactive: bool, as_json: bool) -> None:
    """List the access tokens of the HTTP API: owner, role and last use.

    viewer: read, without inputs and results. operator: start, cancel, retry, signal, drain, pause.
    admin: also tokens and the audit log.
    """
    if not subcommand_follows(target):
        _list(target, include_inactive, as_json)


@tokens.command("list")
@with_target
@all_option
@json_option
def list_(target: Target, include_inactive: bool, as_json: bool) -> None:
    """List tokens, newest first."""
    _list(target, include_inactive, as_json)


@tokens.command()
@with_target
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="viewer",
    show_default=True,
    help="Role of the token.",
)
@click.option(
    "--expires",
    type=LifetimeParameter(),
    default="90d",
    show_default=True,
    help="Time until it expires: 12h, 30d; or never.",
)
@json_option
def create(target: Target, name: str, role: str, expires: timedelta, as_json: bool) -> None:
    """Create a token for NAME, a person or a program. It is printed once and cannot be shown again."""
    from rota.app.tokens import create_access_token
    from rota.model.access import Role
    from rota.operations.access import CreatedToken

    lifetime = None if expires == timedelta.max else expires

    async def action(app: Rota) -> CreatedToken:
        token, row = await create_access_token(
            app, name, Role.parse(role), lifetime, owner.current_operator()
        )
        return CreatedToken(token.id, token.text, row.expires)

    created = target.run(action)
    if as_json:
        output.print_json(created)
        return
    click.echo(created.token)
    until = "for good"
    if created.expires is not None:
        until = f"until {output.format_time(created.expires)}"
    print_note(
        f"this token makes {name} {_with_article(role)}, {until}. It is not shown again; revoke it with "
        f"`rota tokens revoke {created.id}`"
    )


@tokens.command()
@with_target
@click.argument("id")
@json_option
def revoke(target: Target, id: str, as_json: bool) -> None:
    """Revoke the token ID."""
    from rota.app.tokens import revoke_access_token

    token = target.run(lambda app: revoke_access_token(app, id, owner.current_operator()))
    if as_json:
        output.print_json(token)
    else:
        click.echo(f"token {token.id} of {token.name} ({token.role}) is revoked")


def _list(target: Target, include_inactive: bool, as_json: bool) -> None:
    from rota.operations.access import list_tokens

    def show(document: TokenList, now: datetime) -> None:
        if document.tokens:
            TOKENS.print(document.tokens, now)
        elif include_inactive:
            click.echo("no tokens yet; create one with `rota tokens create NAME`")
        else:
            click.echo(
                "no token is valid; create one with `rota tokens create NAME`, "
                "or list old ones with --all"
            )

    query = {"include_inactive": include_inactive, "limit": MAX_TOKENS}
    list_command(target, list_tokens, show, as_json=as_json, query=query)


def _style(token: TokenRow) -> str:
    return "" if token.state == "active" else "dim"


def _expires(token: TokenRow, now: datetime) -> str:
    if token.state != "active":
        return token.state
    return NEVER if token.expires is None else f"in {output.format_age(now, token.expires)}"


def _used(token: TokenRow, now: datetime) -> str:
    return "never" if token.last_used is None else f"{output.format_age(token.last_used, now)} ago"


TOKENS = Table["TokenRow"](
    Column("token", lambda row, now: row.id, _style, wraps=True),
    Column("name", lambda row, now: row.name, _style, wraps=True),
    Column("role", lambda row, now: row.role, _style),
    Column("expires", _expires, _style, right=True),
    Column("last used", _used, _style, right=True),
    Column("created by", lambda row, now: row.created_by, "dim", wraps=True),
)


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"
