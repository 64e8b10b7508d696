"""`rota dashboard`: the pages, the API and health, on their own address."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import rich_click as click

from rota import logs
from rota.app.shutdown_signals import stop_on_signal
from rota.cli import event_loop
from rota.cli.exit_codes import translate_database_errors
from rota.cli.options.logging import log_options
from rota.cli.options.web import (
    DASHBOARD_PORT,
    auth_option,
    host_option,
    listen,
    port_option,
    require_extra,
)
from rota.cli.parent_pipe import ParentPipe, parent_pipe_option
from rota.cli.target import Target, with_target
from rota.logs import Format

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from rota import Rota
    from rota.web.site import Auth
    from rota.web.tokens_auth import LocalAccess

log = logging.getLogger("rota")


@click.command()
@with_target
@click.argument("name", metavar="[MODULE:APP]", required=False)
@host_option
@port_option(DASHBOARD_PORT)
@auth_option
@click.option(
    "--read-only", is_flag=True, help="Serve the pages without any action that changes something."
)
@click.option(
    "--prefix",
    default="",
    metavar="PATH",
    help="Path under which a proxy serves it, such as /rota; default: /.",
)
@log_options
@parent_pipe_option
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
    pipe: ParentPipe | None,
) -> None:
    """Serve the dashboard and its API until Ctrl-C.

    With MODULE:APP it can draw and start the app's flows and tasks; without, it shows the contents of
    the database. Requests need a token (`rota tokens create`). With --auth local the printed link gives
    access, on this machine only.
    """
    logs.to_stderr(log_level, log_format)
    with require_extra("rota dashboard", "web"):
        from rota.web.site import ALL_PARTS, site
        from rota.web.tokens_auth import LocalAccess
    local = LocalAccess() if auth == "local" else None
    with translate_database_errors():
        app = target.with_overrides(name, None, None).resolve_app()
        pages = site(app, auth=local or auth, bind=host, parts=ALL_PARTS, read_only=read_only)
        event_loop.run(_serve(app, pages, host, port, _normalize_prefix(prefix), local, pipe))


def _normalize_prefix(prefix: str) -> str:
    stripped = prefix.strip("/")
    return f"/{stripped}" if stripped else ""


async def _serve(
    app: Rota,
    pages: ASGIApp,
    host: str,
    port: int,
    prefix: str,
    local: LocalAccess | None,
    pipe: ParentPipe | None,
) -> None:
    from rota.store.migrate import check
    from rota.web.listen import base_url
    from rota.web.serve import serving

    with stop_on_signal() as stopping:
        async with app:
            await check((await app.open()).database)
            bound = listen(host, port, remedy="--host or --port")
            async with serving(pages, bound, prefix):
                log.info("dashboard at %s%s/", base_url(bound), prefix)
                if pipe is not None:
                    pipe.report_up()
                elif local is not None:
                    click.echo(f"sign in at {local.link(base_url(bound) + prefix)}", err=True)
                if local is None:
                    log.info(
                        "sign-in needs a token; create one with `rota tokens create NAME --role operator`"
                    )
                await stopping.wait()
                app.readiness.drain()
