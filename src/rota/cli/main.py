"""`rota`: the command group, its global options, and the exit of the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import rich_click as click
from click.exceptions import Abort

from rota.cli import exit_codes
from rota.cli.target import Target, app_option, database_options
from rota.errors import RotaError

_HELP_CONFIG = {
    "theme": "default-slim",
    "max_width": 100,
    "options_table_help_sections": ["help", "default", "envvar"],
}
_EXIT_CODES_TEXT = "\n\n".join(
    f"{code}  {meaning}" for code, meaning in exit_codes.EXIT_CODE_MEANINGS.items()
)


# Commands by topic, each with its module. Only the module of the invoked command is loaded.
PANELS = {
    "Run": {"worker": "worker", "dev": "dev", "serve": "serve", "mcp": "mcp", "start": "start"},
    "Inspect": {
        "dashboard": "dashboard",
        "top": "top",
        "runs": "runs",
        "show": "show.command",
        "explain": "explain",
        "queues": "queues",
        "autoscale": "autoscale",
        "workers": "workers",
        "schedules": "schedules",
        "quarantine": "quarantine",
        "flows": "flows",
        "graph": "flows",
        "check-deploy": "check_deploy",
    },
    "Manage": {
        "signal": "signal",
        "cancel": "runs",
        "retry": "runs",
        "fork": "runs",
        "release": "quarantine",
        "drain": "workers",
        "prune": "prune",
    },
    "Coordination": {
        "locks": "locks",
        "leaders": "leaders",
        "services": "services",
        "alerts": "alerts",
        "audit": "alerts",
    },
    "Administration": {
        "db": "db",
        "doctor": "doctor",
        "tokens": "tokens",
        "pg": "pg",
        "demo": "demo",
    },
}
COMMANDS = {name: module for panel in PANELS.values() for name, module in panel.items()}


class LazyCommands(click.RichGroup):
    """Command group that imports a command when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f"rota.cli.{COMMANDS[name]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command


def _add_panels(group: Callable[..., Any]) -> Callable[..., Any]:
    for title, commands in reversed(PANELS.items()):
        group = click.command_panel(title, commands=list(commands))(group)
    return group


@click.group(
    cls=LazyCommands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit codes:\n\n{_EXIT_CODES_TEXT}",
)
@click.rich_config(help_config=_HELP_CONFIG)
@_add_panels
@click.option_panel("Options")
@click.version_option(package_name="pgrota", message="rota %(version)s")
@app_option(is_global=True)
@database_options(is_global=True)
@click.pass_context
def cli(context: click.Context, app: str | None, dsn: str | None, schema: str | None) -> None:
    """Durable jobs on PostgreSQL: run workers, start jobs, inspect and manage runs."""
    context.obj = Target(app, dsn, schema)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Return its exit code; a bug raises its exception."""
    try:
        code = cli.main(arguments, prog_name="rota", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exit_codes.OK
    except BrokenPipeError:
        # The reader closed the pipe. Redirect stdout, so that Python's flush at exit does not fail,
        # too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.FAILED
    except Abort:
        return exit_codes.INTERRUPTED
    except click.ClickException as error:
        exit_codes.print_error(exit_codes.format_click_error(error))
        return error.exit_code
    except RotaError as error:
        exit_codes.print_error(str(error))
        return exit_codes.exit_code_of(error)


def main() -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that cannot show a character gets its code instead of a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run())
