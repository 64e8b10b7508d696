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
    from rota.store.migrate import SchemaComparison


@click.group()
def db() -> None:
    """Migrate the database schema, or show its state."""


@db.command()
@with_target
@click.option(
    "--print",
    "as_script",
    is_flag=True,
    help="Apply nothing; print a script for psql instead, to be run by a role with more rights.",
)
def migrate(target: Target, as_script: bool) -> None:
    """Bring the schema up to date. Safe to run from several processes at once."""
    if as_script:
        click.echo(target.run_unchecked(_read_script), nl=False)
        return

    async def migrate_schema(app: Rota) -> tuple[list[str], str]:
        return await app.migrate(), _USABLE[(await _compare(app)).state].format(app.settings.schema)

    applied, message = target.run_unchecked(migrate_schema)
    for name in applied:
        click.echo(f"applied {name}")
    click.echo(message)


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
    if schema_status["error"] is not None:
        exit_with(NO_DATABASE)


_USABLE = {
    "up to date": "schema {!r} is up to date",
    "newer": "schema {!r} has migrations of a newer Rota, and this version can use them",
}
"""Texts for the states in which this version of Rota can use the schema."""


async def _compare(app: Rota) -> SchemaComparison:
    from rota.store.migrate import compare_schema

    return await compare_schema((await app.open()).database)


async def _read_script(app: Rota) -> str:
    from rota.store.migrate import script

    return await script((await app.open()).database)


async def _read_schema_status(app: Rota) -> dict[str, Any]:
    compared = await _compare(app)
    async with (await app.open()).database.connection() as connection:
        info = connection.info
        server = {"host": info.host, "database": info.dbname, "user": info.user}
        version = info.server_version
    return {
        **server,
        "server": f"{version // 10000}.{version % 10000}",
        "schema": compared.schema,
        "state": compared.state,
        "error": None if compared.error is None else str(compared.error),
        **{
            kind: [each.label for each in migrations]
            for kind, migrations in (
                ("applied", compared.applied),
                ("newer", compared.newer),
                ("changed", compared.changed),
                ("pending", compared.pending),
            )
        },
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
        ("state", output.cell(state, "green" if state in _USABLE else "yellow")),
        *(("applied", name) for name in schema_status["applied"]),
        *(
            (kind, output.cell(name, "yellow"))
            for kind in ("newer", "changed", "pending")
            for name in schema_status[kind]
        ),
    ]
    output.print_renderable(output.property_table(properties))
    if schema_status["error"] is not None:
        click.echo()
        output.print_text(schema_status["error"])
