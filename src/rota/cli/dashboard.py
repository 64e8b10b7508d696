"""`rota dashboard`: the pages, the API and health, on an address of their own."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

import rich_click as click

from rota import logs
from rota.cli import loops
from rota.cli.edge import auth_option, web_needed
from rota.cli.endings import FAILED, Told, database_errors_told
from rota.cli.lines import log_options
from rota.cli.target import Target, with_target
from rota.logs import Format

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from rota import Rota
    from rota.cli.lifeline import Lifeline
    from rota.web.doorman import LocalAccess
    from rota.web.site import Auth

log = logging.getLogger("rota")

LOOPBACK = "127.0.0.1"


@click.command()
@with_target
@click.argument("name", metavar="[MODULE:APP]", required=False)
@click.option(
    "--host", default=LOOPBACK, metavar="HOST", show_default=True, help="Where to listen."
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    metavar="N",
    show_default=True,
    help="At which port; 0: any that is free.",
)
@auth_option
@click.option(
    "--read-only", is_flag=True, help="For looking only: nobody changes anything this way."
)
@click.option(
    "--prefix", default="", metavar="PATH", help="Where a proxy has it, such as /rota, if not at /."
)
@log_options
@click.option("--lifeline", type=int, hidden=True)
def dashboard(
    target: Target,
    name: str | None,
    host: str,
    port: int,
    auth: Auth,
    read_only: bool,
    prefix: str,
    log_level: str,
    log_format: Format,
    lifeline: int | None,
) -> None:
    """Serve the dashboard, and the API it works with, until Ctrl-C.

    With MODULE:APP it knows the app's flows and tasks, draws them and can start them; without, it shows
    what is in the database. Whoever comes shows a token (`rota tokens create`); with --auth local whoever
    opens the link that it prints is let in, on this machine.
    """
    from rota.cli.lifeline import Lifeline

    logs.to_stderr(log_level, log_format)
    # Before the app is imported: that may take long, and the parent may die meanwhile.
    line = None if lifeline is None else Lifeline(lifeline)
    with web_needed("rota dashboard"):
        from rota.web.doorman import LocalAccess
        from rota.web.site import EVERYTHING, site
    local = LocalAccess() if auth == "local" else None
    with database_errors_told():
        app = target.over(name, None, None).rota()
        pages = site(app, auth=local or auth, bind=host, parts=EVERYTHING, read_only=read_only)
        loops.run(_serve(app, pages, host, port, _path(prefix), local, line))


def _path(prefix: str) -> str:
    inner = prefix.strip("/")
    return f"/{inner}" if inner else ""


async def _serve(
    app: Rota,
    pages: ASGIApp,
    host: str,
    port: int,
    prefix: str,
    local: LocalAccess | None,
    line: Lifeline | None,
) -> None:
    from rota.store.migrate import check
    from rota.web.port import serving
    from rota.web.serve import address, bind

    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leaving.set)
    async with app:
        await check((await app.open()).database)
        try:
            bound = bind(host, port)
        except OSError as error:
            raise Told(
                f"cannot listen at {host} port {port}: {error.strerror or error}; say another with "
                "--host or --port",
                FAILED,
            ) from None
        async with serving(pages, bound, prefix):
            log.info("dashboard at %s%s/", address(bound), prefix)
            if line is not None:
                line.say_up()
            elif local is not None:
                click.echo(f"sign in at {local.link(address(bound) + prefix)}", err=True)
            if local is None:
                log.info("whoever comes shows a token: rota tokens create NAME --role operator")
            await leaving.wait()
            app.readiness.drain()
