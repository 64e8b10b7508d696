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
from pathlib import Path
from typing import Any

import rich_click as click

from rota.errors import RotaError
from rota.localpg import LocalPostgres

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


@pg.command(context_settings={"ignore_unknown_options": True})
@directory_option
@click.option(
    "--database",
    default="rota",
    show_default=True,
    help="Database to open; created if it does not exist.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def psql(directory: Path | None, database: str, arguments: tuple[str, ...]) -> None:
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
