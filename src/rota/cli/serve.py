"""`rota serve`: an API on uvicorn, in one or several processes, with a drain visible to load balancers."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota import logs
from rota.cli.app_loader import load_api
from rota.cli.exit_codes import (
    USAGE_ERROR,
    CommandError,
    exit_with,
    translate_database_errors,
)
from rota.cli.options.logging import log_options
from rota.cli.options.web import (
    HealthPort,
    auth_option,
    health_options,
    host_option,
    listen,
    port_option,
    require_web,
    serve_health,
)
from rota.cli.parent_pipe import ParentPipe, parent_pipe_option
from rota.cli.target import Target, with_target
from rota.logs import Format

if TYPE_CHECKING:
    from rota import Rota
    from rota.web.site import Auth

log = logging.getLogger("rota")

LOOPBACK = "127.0.0.1"


@click.command()
@with_target
@click.argument("name", metavar="MODULE:API")
@host_option
@port_option(8000)
@click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="N",
    show_default=True,
    help="Number of web processes on the same port.",
)
@click.option(
    "--drain-delay",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Seconds to keep serving after the signal; default: ROTA_DRAIN_DELAY, else 10.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Seconds for requests and jobs to finish after that; default: ROTA_DRAIN_TIMEOUT, else 30.",
)
@click.option(
    "--no-worker",
    is_flag=True,
    help="Start runs only; run no jobs and no services in this process.",
)
@health_options("Serve /health, /metrics and /autoscale on this separate port.")
@auth_option
@log_options
@click.option("--socket", "descriptor", type=int, hidden=True)
@parent_pipe_option
def serve(
    target: Target,
    name: str,
    host: str,
    port: int,
    workers: int,
    drain_delay: float | None,
    drain_timeout: float | None,
    no_worker: bool,
    health_port: int | None,
    health_host: str,
    auth: Auth,
    log_level: str,
    log_format: Format,
    descriptor: int | None,
    pipe: ParentPipe | None,
) -> None:
    """Serve MODULE:API, a FastAPI or other ASGI application, until SIGTERM or Ctrl-C.

    On the signal, readiness fails while it continues to serve, until load balancers have noticed. It
    then accepts no more requests and finishes the open ones; jobs finish or return to their queue. A
    second signal shortens this. The Rota app is the one in the API's module, unless -a names another.
    """
    if workers > 1 and health_port is not None:
        raise click.UsageError(
            "--health-port does not work with --workers: metrics and health are per process, and a probe "
            "would reach any of them. Start one `rota serve` per process, each with its own ports, or "
            "mount rota.web.health in the API"
        )
    logs.to_stderr(log_level, log_format)
    require_web("rota serve")
    if descriptor is not None:
        listening = socket.socket(fileno=descriptor)
    else:
        listening = listen(host, port, remedy="--host, --port or --health-port")
    if descriptor is None and workers > 1:
        from rota.cli import supervisor

        arguments = supervisor.child_arguments(target, without=["workers"])
        command = supervisor.rota_command(
            ["serve", name, *arguments, "--socket", str(listening.fileno())]
        )
        children = supervisor.Supervisor(command, workers, "web process", [listening])
        exit_with(asyncio.run(children.run()))
    health = HealthPort.open(health_host, health_port, auth)
    with translate_database_errors():
        api, app = _load(target, name)
        options = {
            "drain_delay": drain_delay,
            "drain_timeout": drain_timeout,
            "web_worker": False if no_worker else None,
        }
        overrides: dict[str, Any] = {
            setting: value for setting, value in options.items() if value is not None
        }
        app.settings = replace(app.settings, **overrides)
        _serve(api, app, listening, health, pipe)


def _load(target: Target, name: str) -> tuple[Any, Rota]:
    api, apps = load_api(name)
    if target.app is None:
        if len(apps) != 1:
            found = f"has several Rota apps, {' and '.join(apps)}" if apps else "has no Rota app"
            raise CommandError(
                f"the module of {name} {found}: choose one with -a MODULE:APP", USAGE_ERROR
            )
        target = target.with_overrides(apps[0], None, None)
    return api, target.resolve_app()


def _serve(
    api: Any,
    app: Rota,
    listening: socket.socket,
    health: HealthPort | None,
    pipe: ParentPipe | None,
) -> None:
    from rota.cli import event_loop
    from rota.cli.worker import ORPHAN_EXIT_SECONDS
    from rota.web.listen import base_url
    from rota.web.serve import serve

    if pipe is not None:
        settings = app.settings
        pipe.kill_after_seconds = (
            settings.drain_delay + settings.drain_timeout + ORPHAN_EXIT_SECONDS
        )

    def on_started() -> None:
        app.readiness.awaits_server = False
        log.info("serving at %s", base_url(listening))
        if pipe is not None:
            pipe.report_up()

    async def main() -> None:
        app.readiness.awaits_server = True
        async with serve_health(app, health):
            await serve(api, app, [listening], on_started)

    event_loop.run(main())
