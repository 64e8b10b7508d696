"""`rota tokens`: access tokens of the HTTP API and their roles."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import print_note
from rota.cli.format import owner
from rota.cli.start import DurationParameter
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.model.access import AccessToken
    from rota.store.tokens import TokenRow

ROLES = ("viewer", "operator", "admin")
NEVER = "never"

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
@as_json_option
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
@as_json_option
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
@as_json_option
def create(target: Target, name: str, role: str, expires: timedelta, as_json: bool) -> None:
    """Create a token for NAME, a person or a program. It is printed once and cannot be shown again."""
    from rota.app.tokens import create_access_token
    from rota.model.access import Role

    lifetime = None if expires == timedelta.max else expires

    async def action(app: Rota) -> tuple[AccessToken, TokenRow]:
        return await create_access_token(
            app, name, Role.parse(role), lifetime, owner.current_operator()
        )

    token, row = target.run(action)
    if as_json:
        output.print_json({**output.fields(row), "token": token.text})
        return
    click.echo(token.text)
    until = "for good" if row.expires is None else f"until {output.format_time(row.expires)}"
    print_note(
        f"this token makes {name} {_with_article(role)}, {until}. It is not shown again; revoke it with "
        f"`rota tokens revoke {row.id}`"
    )


@tokens.command()
@with_target
@click.argument("id")
@as_json_option
def revoke(target: Target, id: str, as_json: bool) -> None:
    """Revoke the token ID."""
    from rota.app.tokens import revoke_access_token

    async def action(app: Rota) -> TokenRow:
        return await revoke_access_token(app, id, owner.current_operator())

    row = target.run(action)
    if as_json:
        output.print_json(output.fields(row))
    else:
        click.echo(f"token {row.id} of {row.name} ({row.role}) is revoked")


def _list(target: Target, include_inactive: bool, as_json: bool) -> None:
    from rota.store import tokens as rows
    from rota.store.read import runs

    async def query(app: Rota) -> tuple[list[TokenRow], datetime]:
        database = (await app.open()).database
        found = await database.run(
            rows.list_tokens(include_inactive=include_inactive, limit=10_000)
        )
        [now] = await database.run(runs.database_time())
        return found, now

    found, now = target.run(query)
    if as_json:
        output.print_json([output.fields(each) for each in found])
    elif found:
        _print(found, now)
    elif include_inactive:
        click.echo("no tokens yet; create one with `rota tokens create NAME`")
    else:
        click.echo(
            "no token is valid; create one with `rota tokens create NAME`, or list old ones with --all"
        )


def _print(found: list[TokenRow], now: datetime) -> None:
    columns = {
        "token": [output.wrapped_cell(each.id, _style(each)) for each in found],
        "name": [output.wrapped_cell(each.name, _style(each)) for each in found],
        "role": [output.cell(each.role, _style(each)) for each in found],
        "expires": [output.cell(_expires(each, now), _style(each)) for each in found],
        "last used": [output.cell(_used(each, now), _style(each)) for each in found],
        "created by": [output.wrapped_cell(each.created_by, "dim") for each in found],
    }
    owner.print_table(columns, right=("expires", "last used"), free=("name", "created by"))


def _style(token: TokenRow) -> str:
    return "" if token.state == "active" else "dim"


def _expires(token: TokenRow, now: datetime) -> str:
    if token.state != "active":
        return token.state
    return NEVER if token.expires is None else f"in {output.format_age(now, token.expires)}"


def _used(token: TokenRow, now: datetime) -> str:
    return "never" if token.last_used is None else f"{output.format_age(token.last_used, now)} ago"


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"
