"""`rota`: the group, its global options, and how the program ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import rich_click as click
from click.exceptions import Abort

from rota.cli import endings
from rota.cli.check_deploy import check_deploy
from rota.cli.db import db
from rota.cli.demo import demo
from rota.cli.flows import flows, graph
from rota.cli.pg import pg
from rota.cli.prune import prune
from rota.cli.quarantine import quarantine, release
from rota.cli.queues import queues
from rota.cli.runs import cancel, fork, retry, runs
from rota.cli.show import show
from rota.cli.signal import signal
from rota.cli.start import start
from rota.cli.target import Target, app_option, database_options
from rota.cli.worker import worker
from rota.cli.workers import drain, workers
from rota.errors import RotaError

_LOOK = {
    "theme": "default-slim",
    "max_width": 100,
    "options_table_help_sections": ["help", "default", "envvar"],
}
_CODES = "\n\n".join(f"{code}  {meaning}" for code, meaning in endings.MEANINGS.items())


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit codes:\n\n{_CODES}",
)
@click.rich_config(help_config=_LOOK)
@click.command_panel("Work", commands=["worker", "start"])
@click.command_panel(
    "See",
    commands=["runs", "show", "queues", "workers", "quarantine", "flows", "graph", "check-deploy"],
)
@click.command_panel(
    "Decide", commands=["signal", "cancel", "retry", "fork", "release", "drain", "prune"]
)
@click.command_panel("Set up", commands=["db", "pg", "demo"])
@click.option_panel("Options")
@click.version_option(package_name="rota", message="rota %(version)s")
@app_option(above=True)
@database_options(above=True)
@click.pass_context
def cli(context: click.Context, app: str | None, dsn: str | None, schema: str | None) -> None:
    """Durable work on PostgreSQL: run workers, start jobs, see what became of them."""
    context.obj = Target(app, dsn, schema)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for panel in (
    (worker, start),
    (runs, show, queues, workers, quarantine, flows, graph, check_deploy),
    (signal, cancel, retry, fork, release, drain, prune),
    (db, pg, demo),
):
    for command in panel:
        cli.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Answers its exit code; a bug comes out as the exception it is."""
    try:
        code = cli.main(arguments, prog_name="rota", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else endings.OK
    except BrokenPipeError:
        # Whoever read us has enough; there is nobody to tell, also not when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return endings.FAILED
    except Abort:
        return endings.INTERRUPTED
    except click.ClickException as error:
        endings.tell(endings.in_our_words(error))
        return error.exit_code
    except RotaError as error:
        endings.tell(str(error))
        return endings.code_of(error)


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that cannot show a letter is shown its number, not a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run())
