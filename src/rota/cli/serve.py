"""`rota serve`: an API on uvicorn, in one or several processes, with a drain visible to load balancers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota import logs
from rota.cli.app_loader import load_api
from rota.cli.exit_codes import (
    FAILED,
    USAGE_ERROR,
    CommandError,
    exit_with,
    translate_database_errors,
)
from rota.cli.options.extra import require_extra
from rota.cli.options.logging import log_options
from rota.cli.options.web import auth_option, health_site
from rota.cli.target import Target, with_target
from rota.logs import Format

if TYPE_CHECKING:
    from rota import Rota
    from rota.cli.parent_pipe import ParentPipe
    from rota.web.site import Auth

log = logging.getLogger("rota")

LOOPBACK = "127.0.0.1"


@click.command()
@with_target
@click.argument("name", metavar="MODULE:API")
@click.option(
    "--host", default=LOOPBACK, metavar="HOST", show_default=True, help="Address to listen on."
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    metavar="N",
    show_default=True,
    help="Port to listen on; 0 selects a free one.",
)
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
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Serve /health, /metrics and /autoscale on this separate port.",
)
@click.option(
    "--health-host",
    default=LOOPBACK,
    metavar="HOST",
    show_default=True,
    help="Address of the health port.",
)
@auth_option
@log_options
@click.option("--socket", "descriptor", type=int, hidden=True)
@click.option("--parent-pipe", type=int, hidden=True)
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
    parent_pipe: int | None,
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
    bind = _import_bind()
    pipe = _open_parent_pipe(parent_pipe)
    if parent_pipe is not None:
        assert descriptor is not None
        listening = socket.socket(fileno=descriptor)
        health_socket = None
    else:
        listening = _listen(bind, host, port)
        health_socket = None if health_port is None else _listen(bind, health_host, health_port)
    if parent_pipe is None and workers > 1:
        given = {
            "--log-level": log_level,
            "--log-format": log_format,
            "--app": target.app,
            "--dsn": target.dsn,
            "--schema": target.schema,
            "--drain-delay": drain_delay,
            "--drain-timeout": drain_timeout,
        }
        flags = ["--no-worker"] if no_worker else []
        _supervise(name, [*_as_arguments(given), *flags], workers, listening)
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
        health = None if health_socket is None else _HealthServer(health_socket, health_host, auth)
        _serve(api, app, listening, health, pipe)


def _as_arguments(options: Mapping[str, object]) -> Iterator[str]:
    for option, value in options.items():
        if value is not None:
            yield from (option, str(value))


def _import_bind() -> Any:
    with require_extra("rota serve", "web"):
        from rota.web.serve import bind
    return bind


def _listen(bind: Any, host: str, port: int) -> socket.socket:
    try:
        bound: socket.socket = bind(host, port)
    except OSError as error:
        raise CommandError(
            f"cannot listen at {host} port {port}: {error.strerror or error}; choose another with --host, "
            "--port or --health-port",
            FAILED,
        ) from None
    return bound


def _open_parent_pipe(descriptor: int | None) -> ParentPipe | None:
    from rota.cli.parent_pipe import ParentPipe

    # Created before the API is imported: the import may take long, and the parent may die
    # meanwhile.
    return None if descriptor is None else ParentPipe(descriptor)


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
    health: _HealthServer | None,
    pipe: ParentPipe | None,
) -> None:
    from rota.cli import event_loop
    from rota.cli.worker import ORPHAN_EXIT_SECONDS
    from rota.web.serve import base_url, serve

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
        async with AsyncExitStack() as stack:
            if health is not None:
                await stack.enter_async_context(health.serve(app))
            await serve(api, app, [listening], on_started)

    event_loop.run(main())


@dataclass(frozen=True, slots=True)
class _HealthServer:
    """Health server on its own port."""

    bound: socket.socket
    host: str
    auth: Auth

    def serve(self, app: Rota) -> AbstractAsyncContextManager[None]:
        from rota.web.serve import serving

        return serving(health_site(app, self.auth, self.host), self.bound)


def _supervise(
    name: str,
    arguments: list[str],
    workers: int,
    listening: socket.socket,
) -> None:
    from rota.cli import supervisor

    arguments += ["--socket", str(listening.fileno())]
    command = supervisor.rota_command(["serve", name, *arguments])

    async def supervise() -> int:
        return await supervisor.Supervisor(command, workers, "web process", [listening]).run()

    exit_with(asyncio.run(supervise()))
