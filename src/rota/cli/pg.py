"""`rota pg`: manual control of the embedded PostgreSQL.

An app starts and stops it automatically. These commands keep it running between runs, show its state, or
open psql.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import rich_click as click

from rota.cli.table import Column, Table
from rota.errors import RotaError
from rota.localpg import LocalPostgres
from rota.localpg.database import drop_database, list_databases
from rota.localpg.projects import default_database

NOT_RUNNING_EXIT_CODE = 3  # the same as `systemctl status` and `pg_ctl status`


class PostgresCommandError(click.ClickException):
    """Error of Rota, shown without a traceback."""


@contextmanager
def translate_errors() -> Iterator[None]:
    try:
        yield
    except RotaError as error:
        raise PostgresCommandError(str(error)) from error


def directory_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that selects the server."""
    return click.option(
        "--directory",
        type=click.Path(path_type=Path, file_okay=False),
        help="Data directory; default: in ROTA_LOCAL_DIR, else in your user data directory.",
    )(command)


@click.group()
def pg() -> None:
    """Start, stop and inspect the embedded PostgreSQL."""


@pg.command()
@directory_option
@click.option("--listen", is_flag=True, help="Also listen on a free TCP port of 127.0.0.1.")
def start(directory: Path | None, listen: bool) -> None:
    """Start the embedded PostgreSQL and keep it running until `rota pg stop`. Prints its DSN."""
    server = LocalPostgres(directory, listen=listen)
    with translate_errors():
        dsn = server.start_detached()
        click.echo(server.tcp_dsn if listen else dsn)


@pg.command()
@directory_option
@click.option(
    "--now", is_flag=True, help="Stop it even if apps use it; they lose their connections."
)
def stop(directory: Path | None, now: bool) -> None:
    """Stop the embedded PostgreSQL, now or when the last app that uses it ends."""
    server = LocalPostgres(directory)
    with translate_errors():
        if not server.status().running:
            click.echo("not running")
        elif server.stop_detached(now=now):
            click.echo("stopped")
        else:
            click.echo("in use: it stops when the last app leaves; --now does not wait for that")


@pg.command()
@directory_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.pass_context
def status(context: click.Context, directory: Path | None, as_json: bool) -> None:
    """Show whether the embedded PostgreSQL is running, and where. Exit code 3 if it is not."""
    with translate_errors():
        server_status = LocalPostgres(directory).status()
    if as_json:
        document = asdict(server_status)
        document["users"] = document.pop("user_pids")
        document["stays_up"] = document.pop("detached")
        click.echo(json.dumps(document, default=str))
    elif server_status.running:
        users = (
            "" if server_status.user_pids is None else f", {len(server_status.user_pids)} using it"
        )
        stays_up = ", kept up until `rota pg stop`" if server_status.detached else ""
        click.echo(
            f"running: PostgreSQL {server_status.version}, process {server_status.pid}{users}{stays_up}"
        )
        click.echo(f"  data  {server_status.directory}")
        click.echo(f"  dsn   {server_status.dsn}")
    else:
        click.echo(f"not running; its data directory is {server_status.directory}")
    if not server_status.running:
        context.exit(NOT_RUNNING_EXIT_CODE)


NO_PROJECT = "postgres"
"""Database of commands that concern the server, so that they create none for the current project."""


class _Database(NamedTuple):
    current: str
    name: str
    directory: str | None
    size: int


_DATABASES = Table[_Database](
    Column("", lambda each, _: "*" if each.name == each.current else ""),
    Column("Database", lambda each, _: each.name),
    Column("Project", lambda each, _: each.directory or "", shrinks=True),
    Column("Size", lambda each, _: f"{each.size / 1e6:,.0f} MB", right=True),
)


@pg.command("list")
@directory_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def print_databases(directory: Path | None, as_json: bool) -> None:
    """List the databases of the embedded PostgreSQL: one for each project."""
    current = default_database(directory).name
    with translate_errors(), LocalPostgres(directory, database=NO_PROJECT) as server:
        databases = list_databases(server.dsn)
    if as_json:
        keys = ("database", "directory", "bytes")
        click.echo(json.dumps([dict(zip(keys, each, strict=True)) for each in databases]))
    elif databases:
        _DATABASES.print([_Database(current, *each) for each in databases], datetime.now(UTC))
    else:
        click.echo("no databases; a program that uses Rota('local') creates one for its project")


@pg.command()
@directory_option
@click.argument("database")
@click.option(
    "--yes", is_flag=True, help="Drop it. Without this option, only say what would be lost."
)
def drop(directory: Path | None, database: str, yes: bool) -> None:
    """Drop a DATABASE with all its jobs. `rota pg list` shows the names."""
    with translate_errors(), LocalPostgres(directory, database=NO_PROJECT) as server:
        if database not in (name for name, *_ in list_databases(server.dsn)):
            raise PostgresCommandError(
                f"there is no database {database!r}; `rota pg list` shows them"
            )
        if not yes:
            raise PostgresCommandError(
                f"database {database!r} and all its jobs would be lost; repeat the command with --yes"
            )
        drop_database(server.dsn, database)
    click.echo(f"dropped {database}")


@pg.command(context_settings={"ignore_unknown_options": True})
@directory_option
@click.option(
    "--database",
    help="Database to open, created if it does not exist; default: the one of this project.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def psql(directory: Path | None, database: str | None, arguments: tuple[str, ...]) -> None:
    """Open psql on the embedded PostgreSQL and start it if necessary. ARGUMENTS are passed to psql."""
    server = LocalPostgres(directory, database=database)
    with translate_errors():
        dsn = server.start()
        try:
            program = server.find_program("psql") or shutil.which("psql")
            if program is None:
                raise PostgresCommandError(
                    "this PostgreSQL comes without psql: install a client "
                    "(Debian: apt install postgresql-client, macOS: brew install libpq), "
                    f"then say `rota pg start` and `psql {shlex.quote(dsn)}`"
                )
            # psql replaces this process and inherits its share of the server; the share ends with
            # psql.
            server.make_share_inheritable()
            sys.stdout.flush()
            os.execv(program, [str(program), dsn, *arguments])
        finally:
            server.stop()
