"""`rota db`: bring the schema up to date, or say how it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import paint
from rota.cli.endings import NO_DATABASE, leave
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota


@click.group()
def db() -> None:
    """The schema in the database: migrate it, see how it stands."""


@db.command()
@with_target
def migrate(target: Target) -> None:
    """Bring the schema up to date. Any number may do this at once; the first does the work."""

    async def migrating(app: Rota) -> tuple[str, list[str]]:
        return app.settings.schema, await app.migrate()

    schema, done = target.ask_unchecked(migrating)
    for name in done:
        click.echo(f"applied {name}")
    click.echo(f"schema {schema!r} is up to date")


@db.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="A JSON document, for programs.")
def status(target: Target, as_json: bool) -> None:
    """Say how the schema stands. Ends with 4 unless this Rota can work with it."""

    async def asking(app: Rota) -> dict[str, Any]:
        return await _standing(app)

    standing = target.ask_unchecked(asking)
    if as_json:
        paint.say_json(standing)
    else:
        _print_standing(standing)
    if standing["state"] != "up to date":
        leave(NO_DATABASE)


async def _standing(app: Rota) -> dict[str, Any]:
    from rota.store.migrate import applied, migrations, newest

    database = (await app.open()).database
    have = await applied(database)
    async with database.connection() as connection:
        info = connection.info
        server = {"host": info.host, "database": info.dbname, "user": info.user}
        version = info.server_version
    behind = [
        f"{each.version:04d}_{each.name}" for each in migrations() if each.version not in have
    ]
    if not have:
        state = "missing"
    elif max(have) > newest():
        state = "too new"
    else:
        state = "behind" if behind else "up to date"
    return {
        **server,
        "server": f"{version // 10000}.{version % 10000}",
        "schema": database.schema,
        "state": state,
        "applied": [f"{version:04d}_{name}" for version, name in sorted(have.items())],
        "behind": behind,
    }


_ADVICE = {
    "missing": "Rota's tables are not there; run `rota db migrate`",
    "behind": "run `rota db migrate`",
    "too new": "a newer Rota has been here; upgrade Rota, or use another database",
}


def _print_standing(standing: dict[str, Any]) -> None:
    state = standing["state"]
    facts: list[tuple[str, Text | str]] = [
        ("database", f"{standing['database']} at {standing['host']}, as {standing['user']}"),
        ("server", f"PostgreSQL {standing['server']}"),
        ("schema", standing["schema"]),
        ("state", paint.text(state, "green" if state == "up to date" else "yellow")),
        *(("applied", name) for name in standing["applied"]),
        *(("behind", paint.text(name, "yellow")) for name in standing["behind"]),
    ]
    paint.show(paint.facts(facts))
    if state in _ADVICE:
        click.echo()
        paint.say(_ADVICE[state])
