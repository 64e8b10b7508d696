"""`rota tokens`: who may ask over HTTP, and for what."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import paint, whom
from rota.cli.endings import note
from rota.cli.start import Span
from rota.cli.target import Target, goes_on, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.tokens import TokenLine

ROLES = ("viewer", "operator", "admin")
NEVER = "never"

as_json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
all_option = click.option("--all", "over", is_flag=True, help="Also those that are over.")


class Lifetime(Span):
    """A duration, or never."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        return timedelta.max if value == NEVER else super().convert(value, param, ctx)


@click.group(invoke_without_command=True)
@with_target
@all_option
@as_json_option
def tokens(target: Target, over: bool, as_json: bool) -> None:
    """List the tokens that open the HTTP API: whose each is, what it may do, when it was last used.

    viewer: look, but see nothing that went in or came out. operator: start, cancel, retry, signal, drain,
    pause. admin: also tokens and the audit log.
    """
    if not goes_on(target):
        _list(target, over, as_json)


@tokens.command("list")
@with_target
@all_option
@as_json_option
def list_(target: Target, over: bool, as_json: bool) -> None:
    """List tokens, the newest first."""
    _list(target, over, as_json)


@tokens.command()
@with_target
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="viewer",
    show_default=True,
    help="What it may do.",
)
@click.option(
    "--expires",
    type=Lifetime(),
    default="90d",
    show_default=True,
    help="For how long it is good: 12h, 30d; or never.",
)
@as_json_option
def create(target: Target, name: str, role: str, expires: timedelta, as_json: bool) -> None:
    """Make a token for NAME: a person, or a program. It is printed this once, and kept nowhere."""
    from rota.app.access import create_token
    from rota.model.access import Role, Token

    lifetime = None if expires == timedelta.max else expires

    async def creating(app: Rota) -> tuple[Token, TokenLine]:
        return await create_token(app, name, Role.named(role), lifetime, whom.operator())

    token, line = target.ask(creating)
    if as_json:
        paint.say_json({**paint.fields(line), "token": token.text})
        return
    click.echo(token.text)
    until = "for good" if line.expires is None else f"until {paint.clock(line.expires)}"
    note(
        f"{name} is {_a(role)} with this, {until}. It is not shown again; `rota tokens revoke {line.id}` "
        "takes it back"
    )


@tokens.command()
@with_target
@click.argument("id")
@as_json_option
def revoke(target: Target, id: str, as_json: bool) -> None:
    """Have the token ID open nothing from now on."""
    from rota.app.access import revoke_token

    async def revoking(app: Rota) -> TokenLine:
        return await revoke_token(app, id, whom.operator())

    line = target.ask(revoking)
    if as_json:
        paint.say_json(paint.fields(line))
    else:
        click.echo(f"token {line.id} of {line.name} ({line.role}) opens nothing any more")


def _list(target: Target, over: bool, as_json: bool) -> None:
    from rota.store import tokens as rows
    from rota.store import views

    async def asking(app: Rota) -> tuple[list[TokenLine], datetime]:
        database = (await app.open()).database
        found = await database.run(rows.listed(over=over, limit=10_000))
        [now] = await database.run(views.clock())
        return found, now

    found, now = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each) for each in found])
    elif found:
        _print(found, now)
    elif over:
        click.echo("there has never been a token; `rota tokens create NAME` makes one")
    else:
        click.echo(
            "no token is good (those that are over: --all); `rota tokens create NAME` makes one"
        )


def _print(found: list[TokenLine], now: datetime) -> None:
    columns = {
        "token": [paint.whole(each.id, _style(each)) for each in found],
        "name": [paint.whole(each.name, _style(each)) for each in found],
        "role": [paint.text(each.role, _style(each)) for each in found],
        "expires": [paint.text(_expires(each, now), _style(each)) for each in found],
        "used": [paint.text(_used(each, now), _style(each)) for each in found],
        "made by": [paint.whole(each.maker, "dim") for each in found],
    }
    whom.show(columns, right=("expires", "used"), free=("name", "made by"))


def _style(token: TokenLine) -> str:
    return "" if token.state == "good" else "dim"


def _expires(token: TokenLine, now: datetime) -> str:
    if token.state != "good":
        return token.state
    return NEVER if token.expires is None else f"in {paint.age(now, token.expires)}"


def _used(token: TokenLine, now: datetime) -> str:
    return "never" if token.used is None else f"{paint.age(token.used, now)} ago"


def _a(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"
