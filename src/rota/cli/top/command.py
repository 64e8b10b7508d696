"""Command `rota top`: options, refresh loop, output format and keys."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from rota.app.shutdown_signals import TERMINAL_SIGNALS, stop_on_signal
from rota.cli import output
from rota.cli.target import Target, with_target
from rota.errors import DatabaseError
from rota.model.text import single_line

if TYPE_CHECKING:
    from rota import Rota
    from rota.cli.top.snapshot import TopSnapshot

PAUSE_FACTOR = 10
"""Pause relative to the duration of a reading, so that watching does not load the database."""

QUIT_KEYS = b"qQ\x03\x04"
ESC = b"\x1b"

# Bytes that a terminal sends for an arrow key, a function key, or a key with Alt.
_ESCAPE_SEQUENCES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\x1b])", re.DOTALL)


@click.command()
@with_target
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    metavar="SECONDS",
    show_default=True,
    help="Time between two refreshes.",
)
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
def top(target: Target, interval: float, once: bool, as_json: bool) -> None:
    """Watch queues, workers, running runs and open alerts. Press q to quit.

    Rates cover the last 15 seconds. If the output is not a terminal, one snapshot is printed, or with
    --json one per line until it is stopped.
    """
    console = output.console()
    is_live = not once and not as_json and console.is_terminal

    async def run_top(app: Rota) -> None:
        from rota.cli.top.snapshot import SnapshotReader

        reader = SnapshotReader((await app.open()).database)
        if is_live:
            await _watch(reader, interval)
        elif as_json and not once:
            await _stream_json(reader, interval)
        else:
            snapshot = await reader.read()
            if as_json:
                _print_json(snapshot)
            else:
                from rota.cli.top.view import TopView

                output.print_renderable(TopView(snapshot, live=False))

    target.run(run_top)


async def _stream_json(reader: Any, interval: float) -> None:
    with stop_on_signal(TERMINAL_SIGNALS) as stopping:
        while not stopping.is_set():
            began = time.monotonic()
            _print_json(await reader.read())
            await _pause(stopping, interval, time.monotonic() - began)


def _print_json(snapshot: TopSnapshot) -> None:
    document = {
        "at": snapshot.at,
        "totals": snapshot.totals,
        "queues": snapshot.queues,
        "workers": [output.fields(each, stored=("metadata",)) for each in snapshot.workers],
        "runs": snapshot.runs,
        "alerts": snapshot.alerts,
    }
    click.echo(msgspec.json.encode(document))


async def _watch(reader: Any, interval: float) -> None:
    from rich.live import Live

    from rota.cli.top.view import TopView

    snapshot = await reader.read()
    with (
        stop_on_signal(TERMINAL_SIGNALS) as stopping,
        _quit_on_key(stopping),
        Live(TopView(snapshot), console=output.console(), screen=True, auto_refresh=False) as live,
    ):
        seconds = 0.0
        while not stopping.is_set():
            await _pause(stopping, interval, seconds)
            began = time.monotonic()
            error_text = ""
            try:
                snapshot = await reader.read()
            except DatabaseError as error:
                error_text = single_line(str(error))
            seconds = time.monotonic() - began
            live.update(TopView(snapshot, error_text), refresh=True)


async def _pause(stopping: asyncio.Event, interval: float, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(interval - seconds, seconds * PAUSE_FACTOR, 0.05)):
            await stopping.wait()
    except TimeoutError:
        pass


def is_quit_key(pressed: bytes) -> bool:
    """True if the keys quit: q, Ctrl-C, Ctrl-D, ESC alone, or end of file of a closed terminal."""
    if not pressed.strip(ESC):
        return True
    return any(key in QUIT_KEYS for key in _ESCAPE_SEQUENCES.sub(b"", pressed))


@contextmanager
def _quit_on_key(stopping: asyncio.Event) -> Iterator[None]:
    """Read single key presses inside the block, and restore the terminal's mode afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    previous = termios.tcgetattr(keyboard)
    loop = asyncio.get_running_loop()

    def on_key() -> None:
        if is_quit_key(os.read(keyboard, 32)):
            stopping.set()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, on_key)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, previous)
