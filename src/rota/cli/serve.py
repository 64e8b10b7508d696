"""`rota serve`: an API on uvicorn, in one process or several, with a drain that load balancers see."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota import logs
from rota.cli.edge import auth_option, health_site, web_needed
from rota.cli.endings import FAILED, MISTAKE, Told, database_errors_told, leave
from rota.cli.lines import log_options
from rota.cli.load import load_api
from rota.cli.target import Target, with_target
from rota.logs import Format

if TYPE_CHECKING:
    from rota import Rota
    from rota.cli.lifeline import Lifeline
    from rota.web.site import Auth

log = logging.getLogger("rota")

LOOPBACK = "127.0.0.1"


@click.command()
@with_target
@click.argument("name", metavar="MODULE:API")
@click.option(
    "--host", default=LOOPBACK, metavar="HOST", show_default=True, help="Where to listen."
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    metavar="N",
    show_default=True,
    help="At which port; 0: any that is free.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="N",
    show_default=True,
    help="Web processes, all at the same port.",
)
@click.option(
    "--lb-delay",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long it serves on, unready, once told to stop; 10 unless ROTA_LB_DELAY says otherwise.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="What requests and jobs have after that; 30 unless ROTA_DRAIN_FOR says otherwise.",
)
@click.option(
    "--no-worker", is_flag=True, help="Only start runs, and leave jobs and services to others."
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Answer /health, /metrics and /autoscale at a port of their own.",
)
@click.option(
    "--health-host", default=LOOPBACK, metavar="HOST", show_default=True, help="Where that is."
)
@auth_option
@log_options
@click.option("--socket", "descriptor", type=int, hidden=True)
@click.option("--lifeline", type=int, hidden=True)
def serve(
    target: Target,
    name: str,
    host: str,
    port: int,
    workers: int,
    lb_delay: float | None,
    grace: float | None,
    no_worker: bool,
    health_port: int | None,
    health_host: str,
    auth: Auth,
    log_level: str,
    log_format: Format,
    descriptor: int | None,
    lifeline: int | None,
) -> None:
    """Serve MODULE:API, a FastAPI or other ASGI application, until SIGTERM or Ctrl-C.

    Then readiness says no while it serves on, until load balancers have noticed; it accepts no more,
    answers what is under way, and jobs end or go back. Another signal hurries. Its Rota app is the one its
    module knows, unless -a names another.
    """
    if workers > 1 and health_port is not None:
        raise click.UsageError(
            "--health-port is one process's: what it counts is its own, and a probe would meet any of "
            "several. Start that many `rota serve` instead, each with ports of its own, or mount "
            "rota.web.health in the API"
        )
    logs.to_stderr(log_level, log_format)
    bind = _bind()
    line = _lifeline(lifeline)
    if lifeline is not None:
        assert descriptor is not None
        listening = socket.socket(fileno=descriptor)
        health = None
    else:
        listening = _bound(bind, host, port)
        health = None if health_port is None else _bound(bind, health_host, health_port)
    if lifeline is None and workers > 1:
        words = ["--log-level", log_level, "--log-format", log_format]
        for option, value in (
            ("--app", target.app),
            ("--dsn", target.dsn),
            ("--schema", target.schema),
            ("--lb-delay", lb_delay),
            ("--grace", grace),
        ):
            words += [] if value is None else [option, str(value)]
        words += ["--no-worker"] if no_worker else []
        _supervise(name, words, workers, listening)
    with database_errors_told():
        api, app = _load(target, name)
        given = {
            "lb_delay": lb_delay,
            "drain_for": grace,
            "web_worker": False if no_worker else None,
        }
        said: dict[str, Any] = {word: value for word, value in given.items() if value is not None}
        app.settings = replace(app.settings, **said)
        extra = None if health is None else _Health(health, health_host, auth)
        _serve(api, app, listening, extra, line)


def _bind() -> Any:
    with web_needed("rota serve"):
        from rota.web.serve import bind
    return bind


def _bound(bind: Any, host: str, port: int) -> socket.socket:
    try:
        bound: socket.socket = bind(host, port)
    except OSError as error:
        raise Told(
            f"cannot listen at {host} port {port}: {error.strerror or error}; say another with --host, "
            "--port or --health-port",
            FAILED,
        ) from None
    return bound


def _lifeline(descriptor: int | None) -> Lifeline | None:
    from rota.cli.lifeline import Lifeline

    # Before the API is imported: that may take long, and the parent may die meanwhile.
    return None if descriptor is None else Lifeline(descriptor)


def _load(target: Target, name: str) -> tuple[Any, Rota]:
    api, apps = load_api(name)
    if target.app is None:
        if len(apps) != 1:
            found = f"knows {' and '.join(apps)}" if apps else "knows no Rota app"
            raise Told(f"the module of {name} {found}: say which with -a MODULE:APP", MISTAKE)
        target = target.over(apps[0], None, None)
    return api, target.rota()


def _serve(
    api: Any,
    app: Rota,
    listening: socket.socket,
    health: _Health | None,
    line: Lifeline | None,
) -> None:
    from rota.cli import loops
    from rota.cli.worker import AFTER_DRAINING
    from rota.web.serve import address, serve

    if line is not None:
        settings = app.settings
        line.patience = settings.lb_delay + settings.drain_for + AFTER_DRAINING

    def up() -> None:
        app.readiness.unserved = False
        log.info("serving at %s", address(listening))
        if line is not None:
            line.say_up()

    async def serving() -> None:
        app.readiness.unserved = True
        async with AsyncExitStack() as stack:
            if health is not None:
                await stack.enter_async_context(health.serving(app))
            await serve(api, app, [listening], up)

    loops.run(serving())


@dataclass(frozen=True, slots=True)
class _Health:
    """What is answered at a port of its own."""

    bound: socket.socket
    host: str
    auth: Auth

    def serving(self, app: Rota) -> AbstractAsyncContextManager[None]:
        from rota.web.port import serving

        return serving(health_site(app, self.auth, self.host), self.bound)


def _supervise(
    name: str,
    words: list[str],
    workers: int,
    listening: socket.socket,
) -> None:
    from rota.cli import crew

    words += ["--socket", str(listening.fileno())]
    command = crew.command(["serve", name, *words])

    async def supervising() -> int:
        return await crew.Crew(command, workers, "web process", [listening]).run()

    leave(asyncio.run(supervising()))
