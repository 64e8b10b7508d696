"""`rota mcp`: a Model Context Protocol server on stdin and stdout."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli.exit_codes import print_note
from rota.cli.format.owner import current_operator
from rota.cli.options.web import require_extra
from rota.cli.target import Target, with_target
from rota.model.access import Caller, Role

if TYPE_CHECKING:
    from rota import Rota


@click.command()
@with_target
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator"]),
    default="viewer",
    show_default=True,
    help="viewer: read-only, without inputs and results. operator: also acts, and the audit log shows it.",
)
def mcp(target: Target, role: str) -> None:
    """Serve the operations as tools of the Model Context Protocol, for agents and editors.

    The client starts this command and talks to it through stdin and stdout. Starting a run needs the app
    that declares its task: -a MODULE:APP.
    """
    with require_extra("rota mcp", "mcp"):
        from rota.mcp import serve

    if sys.stdin.isatty():
        print_note("waiting for an MCP client on stdin; name this command in the client's settings")

    stdout = sys.stdout

    async def run(app: Rota) -> None:
        with redirect_stdout(stdout):
            await serve(app, Caller(f"{current_operator()} (mcp)", Role.parse(role)))

    # stdout carries the protocol: a module of the app that prints must not write to it.
    with redirect_stdout(sys.stderr):
        target.run(run)
