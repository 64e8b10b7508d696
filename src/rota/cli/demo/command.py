"""Command `rota demo`: options, signals, display and shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import rich_click as click

from rota.app.shutdown_signals import TERMINAL_SIGNALS, stop_on_signal
from rota.cli import output
from rota.cli.demo.state import DemoState
from rota.cli.exit_codes import translate_database_errors
from rota.cli.options.web import port_option
from rota.cli.target import Target

if TYPE_CHECKING:
    from rich.live import Live

REDRAW_SECONDS = 0.2


@click.command()
@click.pass_context
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=60,
    metavar="N",
    show_default=True,
    help="Duration of the demo.",
)
@port_option(None, "Port of the dashboard; default: 8080, or a free one if that is in use.")
@click.option(
    "--keep", is_flag=True, help="Keep the workers and the dashboard running until Ctrl-C."
)
@click.option("--no-browser", is_flag=True, help="Open no browser.")
def demo(
    context: click.Context, seconds: float, port: int | None, keep: bool, no_browser: bool
) -> None:
    """Run a demo: a flow, a service, a schedule and fast jobs on two workers, one of which is killed.

    It uses its own PostgreSQL and dashboard; both are removed at the end. Ctrl-C ends it at any time.
    Without a terminal it prints the events as lines.
    """
    parent = context.find_object(Target) or Target()
    if parent.dsn or parent.schema:
        raise click.UsageError(
            "the demo brings a database of its own: leave --dsn and --schema away"
        )
    # Warnings of this process, such as a dead worker, are shown in the view anyway.
    logging.getLogger().addHandler(logging.NullHandler())
    state = DemoState(seconds)
    try:
        with translate_database_errors():
            asyncio.run(_until_signal(_run(state, port, keep=keep, browser=not no_browser)))
    except OSError as error:
        # The terminal was closed. Everything else has been shut down before this.
        if error.errno != errno.EIO:
            raise


async def _until_signal(main: Coroutine[None, None, None]) -> None:
    """Run a coroutine, cancelled by the first signal. Further signals do not interrupt the shutdown."""
    with stop_on_signal(TERMINAL_SIGNALS) as stopping:
        running, stopped = asyncio.create_task(main), asyncio.create_task(stopping.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        running.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await running
        finally:
            # Further signals are ignored until Python itself has ended.
            for number in TERMINAL_SIGNALS if stopping.is_set() else ():
                signal.signal(number, signal.SIG_IGN)


async def _run(state: DemoState, port: int | None, *, keep: bool, browser: bool) -> None:
    from rota.cli.demo.environment import DemoEnvironment
    from rota.cli.demo.scenario import Scenario
    from rota.cli.demo.view import print_summary

    async with AsyncExitStack() as stack:
        try:
            async with _display(state, browser=browser):
                environment = DemoEnvironment(stack, state)
                await environment.create(port)
                await Scenario(environment, state).run()
        except asyncio.CancelledError:
            keep = False
        print_summary(state.counters)
        if keep:
            click.echo("\nthe database, the workers and the dashboard keep running until Ctrl-C")
            click.echo(state.dashboard_url or "the dashboard is not installed")
            await asyncio.Event().wait()


@asynccontextmanager
async def _display(state: DemoState, *, browser: bool) -> AsyncIterator[None]:
    """Print events as lines, on a terminal above the current state."""
    from rota.cli.demo.view import DemoView, print_line

    console = output.console()
    state.print_line = partial(print_line, console)
    if not console.is_terminal:
        yield
        return
    from rich.live import Live

    with Live(DemoView(state), console=console, auto_refresh=False, transient=True) as live:
        tasks = [asyncio.create_task(_draw(live))]
        if browser and _has_browser():
            tasks.append(asyncio.create_task(_open_browser(state)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _draw(live: Live) -> None:
    while True:
        live.refresh()
        await asyncio.sleep(REDRAW_SECONDS)


def _has_browser() -> bool:
    """True if there is a graphical browser, not one that would draw into this terminal."""
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


async def _open_browser(state: DemoState) -> None:
    """Open the page of a running flow, once there is one."""
    await state.flow_started.wait()
    # webbrowser.open may block until the browser is closed, so it runs in a daemon thread.
    threading.Thread(target=webbrowser.open, args=(state.flow_url or "",), daemon=True).start()
