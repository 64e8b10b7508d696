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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import rich_click as click

from rota.app.shutdown_signals import TERMINAL_SIGNALS
from rota.cli import output
from rota.cli.demo.state import DemoState
from rota.cli.exit_codes import translate_database_errors
from rota.cli.target import Target

if TYPE_CHECKING:
    import socket

    from rich.console import Console
    from rich.live import Live

REDRAW_SECONDS = 0.2
POLL_SECONDS = 0.1


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
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the dashboard; default: the first free one from 8000 on.",
)
@click.option("--no-browser", is_flag=True, help="Open no browser.")
def demo(context: click.Context, seconds: float, port: int | None, no_browser: bool) -> None:
    """Run a demo: a flow, a service, a schedule and fast jobs on two workers, one of which is killed.

    It uses its own PostgreSQL and dashboard; both are removed at the end. Ctrl-C ends it at any time.
    Without a terminal it prints the events as lines.
    """
    from rota.cli.demo.environment import bind
    from rota.cli.demo.view import print_summary

    parent = context.find_object(Target) or Target()
    if parent.dsn or parent.schema:
        raise click.UsageError(
            "the demo brings a database of its own: leave --dsn and --schema away"
        )
    # Warnings of this process, such as a dead worker, are shown in the view anyway.
    logging.getLogger().addHandler(logging.NullHandler())
    console = output.console()
    state = DemoState(seconds)
    try:
        with _handle_signals() as stop_request, translate_database_errors():
            bound = bind(port)
            asyncio.run(_run(stop_request, state, bound, console, browser=not no_browser))
        print_summary(state.counters)
    except OSError as error:
        # The terminal was closed. Everything else has been shut down before this.
        if error.errno != errno.EIO:
            raise


class _StopRequest:
    """Request to stop, set by the first signal. Further signals have no effect."""

    def __init__(self) -> None:
        self.is_requested = False
        self._task: asyncio.Task[None] | None = None

    def on_signal(self, *_: object) -> None:
        if not self.is_requested:
            self.is_requested = True
            self.cancels(self._task)

    def cancels(self, task: asyncio.Task[None] | None) -> None:
        """Cancel the task at the first signal, or now if that has arrived."""
        self._task = task
        if self.is_requested and task is not None:
            # Wakes the event loop: the signal handler runs between two of its steps.
            task.get_loop().call_soon_threadsafe(task.cancel)


@contextmanager
def _handle_signals() -> Iterator[_StopRequest]:
    """Stop in order on the first signal inside the block. Further signals do not interrupt the shutdown."""
    stop_request = _StopRequest()
    previous = {
        number: signal.signal(number, stop_request.on_signal) for number in TERMINAL_SIGNALS
    }
    try:
        yield stop_request
    finally:
        for number, handler in previous.items():
            # Further signals are ignored until Python itself has ended.
            signal.signal(number, signal.SIG_IGN if stop_request.is_requested else handler)


async def _run(
    stop_request: _StopRequest,
    state: DemoState,
    bound: socket.socket,
    console: Console,
    *,
    browser: bool,
) -> None:
    from rota.cli.demo.environment import demo_environment
    from rota.cli.demo.scenario import Scenario

    async def run_demo() -> None:
        async with (
            _display(state, console, browser=browser),
            demo_environment(state, bound) as environment,
        ):
            await Scenario(environment, state).run()

    running = asyncio.create_task(run_demo())
    stop_request.cancels(running)
    try:
        await running
    except asyncio.CancelledError:
        if not running.cancelled():
            raise


@asynccontextmanager
async def _display(state: DemoState, console: Console, *, browser: bool) -> AsyncIterator[None]:
    """Show the state on a terminal, or print events as lines."""
    if not console.is_terminal:
        printing = asyncio.create_task(_print_progress(state))
        try:
            yield
        finally:
            printing.cancel()
            _print_events(state)
        return
    from rich.live import Live

    from rota.cli.demo.view import DemoView

    opening = asyncio.create_task(_open_browser(state)) if browser and _has_browser() else None
    live = Live(DemoView(state), console=console, auto_refresh=False, transient=True)
    with live:
        drawing = asyncio.create_task(_draw(live))
        try:
            yield
        finally:
            drawing.cancel()
            if opening is not None:
                opening.cancel()


async def _draw(live: Live) -> None:
    while True:
        live.refresh()
        await asyncio.sleep(REDRAW_SECONDS)


async def _print_progress(state: DemoState) -> None:
    printed: set[str] = set()
    while True:
        urls = {"dashboard       ": state.dashboard_url, "a running flow  ": state.flow_url}
        for title, url in urls.items():
            if url and state.began is not None and title not in printed:
                printed.add(title)
                click.echo(f"{title}{url}")
        _print_events(state)
        sys.stdout.flush()
        await asyncio.sleep(POLL_SECONDS)


def _print_events(state: DemoState) -> None:
    events, state.unprinted[:] = list(state.unprinted), []
    for each in events:
        click.echo(f"{each.seconds:5.1f} s  {each.text}")


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
