"""`rota worker`: run an app's jobs in one or several processes until a signal arrives."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota import logs
from rota.cli.exit_codes import exit_with, translate_database_errors
from rota.cli.options.logging import log_options
from rota.cli.options.web import HealthPort, auth_option, health_options, serve_health
from rota.cli.parent_pipe import ParentPipe, parent_pipe_option
from rota.cli.start import read_arguments
from rota.cli.target import Target, with_database
from rota.logs import Format

if TYPE_CHECKING:
    from rota import Rota
    from rota.web.site import Auth

log = logging.getLogger("rota")

ORPHAN_EXIT_SECONDS = 15.0
"""Time that a worker without a parent gets in addition to its drain timeout."""


@click.command()
@with_database
@click.argument("name", metavar="MODULE:APP", required=False)
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Queue to serve; can be repeated. Default: the queues of the app's tasks.",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of running jobs per process; default: ROTA_CONCURRENCY, else 100.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    metavar="N",
    show_default=True,
    help="Number of worker processes.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Seconds to finish running jobs on shutdown; default: ROTA_DRAIN_TIMEOUT, else 30.",
)
@click.option(
    "--meta",
    "metadata",
    multiple=True,
    metavar="KEY=VALUE",
    help="Metadata shown by `rota workers`; can be repeated.",
)
@click.option("--no-services", is_flag=True, help="Run jobs only, no services.")
@health_options("Serve /health, /metrics, /autoscale and /admin/drain on this port.")
@auth_option
@log_options
@parent_pipe_option
def worker(
    target: Target,
    name: str | None,
    queues: tuple[str, ...],
    concurrency: int | None,
    processes: int,
    drain_timeout: float | None,
    metadata: tuple[str, ...],
    no_services: bool,
    health_port: int | None,
    health_host: str,
    auth: Auth,
    log_level: str,
    log_format: Format,
    pipe: ParentPipe | None,
) -> None:
    """Run the jobs and services of MODULE:APP until SIGTERM, Ctrl-C or `rota drain`.

    On the first signal, or `rota drain`, it claims nothing more and finishes running jobs within the
    drain timeout. A second signal shortens this. Unfinished jobs return to their queue, and the attempt
    does not count. ROTA_VERSION sets the version of the code that is shown.
    """
    target = target.with_overrides(name, None, None)
    if target.app is None:
        raise click.UsageError("no app is given: run `rota worker MODULE:APP`, or set ROTA_APP")
    parsed_metadata = _read_metadata(metadata)
    logs.to_stderr(log_level, log_format)
    if processes == 1:
        with translate_database_errors():
            health = HealthPort.open(health_host, health_port, auth)
            _run_worker(
                target,
                queues,
                concurrency,
                drain_timeout,
                parsed_metadata,
                not no_services,
                pipe,
                health,
            )
    elif health_port is not None:
        raise click.UsageError(
            "--health-port does not work with --processes: health is per process; start one "
            "`rota worker` per process, each with its own port"
        )
    else:
        from rota.cli import supervisor

        arguments = supervisor.child_arguments(target, without=["processes"])
        command = supervisor.rota_command(["worker", target.app, *arguments])
        exit_with(asyncio.run(supervisor.Supervisor(command, processes).run()))


def _read_metadata(pairs: tuple[str, ...]) -> dict[str, Any]:
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise click.UsageError(f"--meta {pair!r} is not KEY=VALUE")
    return read_arguments(None, pairs)


def _run_worker(
    target: Target,
    queues: tuple[str, ...],
    concurrency: int | None,
    drain_timeout: float | None,
    metadata: dict[str, Any],
    services: bool,
    pipe: ParentPipe | None,
    health: HealthPort | None,
) -> None:
    from rota.cli import event_loop

    app = target.resolve_app()
    if drain_timeout is not None:
        app.settings = replace(app.settings, drain_timeout=drain_timeout)
    if pipe is not None:
        pipe.kill_after_seconds = app.settings.drain_timeout + ORPHAN_EXIT_SECONDS
        _report_when_up(app, pipe)
    if log.isEnabledFor(logging.DEBUG):
        # Two lines for each job: a large part of the cost of a short one.
        app.subscribe(lambda event: log.debug("%s", event))

    async def main() -> None:
        app.readiness.mark_starting()
        async with app, serve_health(app, health):
            drained = await app.work(
                queues=queues or None,
                concurrency=concurrency,
                metadata=metadata,
                services=services,
            )
        if drained and pipe is not None:
            pipe.report_drained()

    event_loop.run(main())


def _report_when_up(app: Rota, pipe: ParentPipe) -> None:
    from rota.model.events import Event, ServicesStarted, WorkerStarted

    def on_event(event: Event) -> None:
        if isinstance(event, WorkerStarted | ServicesStarted):
            unsubscribe()  # without subscribers events cost nothing
            pipe.report_up()

    unsubscribe = app.subscribe(on_event)
