"""`rota db`: migrate the schema, or show its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NO_DATABASE, exit_with
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota


@click.group()
def db() -> None:
    """Migrate the database schema, or show its state."""


@db.command()
@with_target
def migrate(target: Target) -> None:
    """Bring the schema up to date. Safe to run from several processes at once."""

    async def migrate_schema(app: Rota) -> tuple[str, list[str]]:
        return app.settings.schema, await app.migrate()

    schema, applied = target.run_unchecked(migrate_schema)
    for name in applied:
        click.echo(f"applied {name}")
    click.echo(f"schema {schema!r} is up to date")


@db.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def status(target: Target, as_json: bool) -> None:
    """Show the state of the schema. Exit code 4 unless this version of Rota can use it."""

    async def query(app: Rota) -> dict[str, Any]:
        return await _read_schema_status(app)

    schema_status = target.run_unchecked(query)
    if as_json:
        output.print_json(schema_status)
    else:
        _print_schema_status(schema_status)
    if schema_status["state"] != "up to date":
        exit_with(NO_DATABASE)


async def _read_schema_status(app: Rota) -> dict[str, Any]:
    from rota.store.migrate import applied, migrations, newest_version

    database = (await app.open()).database
    applied_migrations = await applied(database)
    async with database.connection() as connection:
        info = connection.info
        server = {"host": info.host, "database": info.dbname, "user": info.user}
        version = info.server_version
    pending = [
        f"{each.version:04d}_{each.name}"
        for each in migrations()
        if each.version not in applied_migrations
    ]
    if not applied_migrations:
        state = "missing"
    elif max(applied_migrations) > newest_version():
        state = "too new"
    else:
        state = "outdated" if pending else "up to date"
    return {
        **server,
        "server": f"{version // 10000}.{version % 10000}",
        "schema": database.schema,
        "state": state,
        "applied": [
            f"{version:04d}_{name}" for version, name in sorted(applied_migrations.items())
        ],
        "pending": pending,
    }


_ADVICE = {
    "missing": "Rota's tables are not there; run `rota db migrate`",
    "outdated": "run `rota db migrate`",
    "too new": "a newer Rota has been here; upgrade Rota, or use another database",
}


def _print_schema_status(schema_status: dict[str, Any]) -> None:
    state = schema_status["state"]
    properties: list[tuple[str, Text | str]] = [
        (
            "database",
            f"{schema_status['database']} at {schema_status['host']}, as {schema_status['user']}",
        ),
        ("server", f"PostgreSQL {schema_status['server']}"),
        ("schema", schema_status["schema"]),
        ("state", output.cell(state, "green" if state == "up to date" else "yellow")),
        *(("applied", name) for name in schema_status["applied"]),
        *(("pending", output.cell(name, "yellow")) for name in schema_status["pending"]),
    ]
    output.print_renderable(output.property_table(properties))
    if state in _ADVICE:
        click.echo()
        output.print_text(_ADVICE[state])
