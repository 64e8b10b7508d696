"""The command: how often it looks, in what form it tells, and how it is left."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from rota.cli import paint
from rota.cli.target import Target, with_target
from rota.errors import DatabaseError

if TYPE_CHECKING:
    from rota import Rota
    from rota.cli.top.glance import Sight

SHARE = 10
"""A look that takes a second is followed by ten seconds of rest: watching must not be work."""

LEAVE = b"qQ\x03\x04"
ESC = b"\x1b"

# What a terminal sends for an arrow, a function key, a key together with Alt.
_OTHER_KEYS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\x1b])", re.DOTALL)


@click.command()
@with_target
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    metavar="SECONDS",
    show_default=True,
    help="From one look to the next.",
)
@click.option("--once", is_flag=True, help="Look once, print it, and end.")
@click.option("--json", "as_json", is_flag=True, help="A JSON document a line, for programs.")
def top(target: Target, every: float, once: bool, as_json: bool) -> None:
    """Watch queues, workers, running runs and open alerts as they change; q leaves.

    Speeds are those of the last quarter of a minute. Where nobody looks at a terminal it prints one look,
    or with --json one a line until it is stopped.
    """
    console = paint.console()
    watching = not once and not as_json and console.is_terminal

    async def asking(app: Rota) -> None:
        from rota.cli.top.glance import Glance

        glance = Glance((await app.open()).database)
        if watching:
            await _watch(glance, every)
        elif as_json and not once:
            await _tell(glance, every)
        else:
            sight = await glance.look()
            if as_json:
                _print(sight)
            else:
                from rota.cli.top.view import View

                paint.show(View(sight, live=False))

    target.ask(asking)


async def _tell(glance: Any, every: float) -> None:
    with _until_told() as told:
        while not told.is_set():
            began = time.monotonic()
            _print(await glance.look())
            await _rest(told, every, time.monotonic() - began)


def _print(sight: Sight) -> None:
    document = {
        "at": sight.at,
        "totals": sight.fleet,
        "queues": sight.queues,
        "workers": [paint.fields(each, stored=("metadata",)) for each in sight.workers],
        "runs": sight.runs,
        "alerts": sight.alerts,
    }
    click.echo(msgspec.json.encode(document))


async def _watch(glance: Any, every: float) -> None:
    from rich.live import Live

    from rota.cli.top.view import View

    sight = await glance.look()
    with (
        _until_told() as told,
        _keys(told),
        Live(View(sight), console=paint.console(), screen=True, auto_refresh=False) as live,
    ):
        took = 0.0
        while not told.is_set():
            await _rest(told, every, took)
            began = time.monotonic()
            trouble = ""
            try:
                sight = await glance.look()
            except DatabaseError as error:
                trouble = paint.line(str(error))
            took = time.monotonic() - began
            live.update(View(sight, trouble), refresh=True)


async def _rest(told: asyncio.Event, every: float, took: float) -> None:
    try:
        async with asyncio.timeout(max(every - took, took * SHARE, 0.05)):
            await told.wait()
    except TimeoutError:
        pass


@contextmanager
def _until_told() -> Iterator[asyncio.Event]:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, told.set)
    try:
        yield told
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


def leaves(pressed: bytes) -> bool:
    """Whether these keys leave: q, Ctrl-C, Ctrl-D, ESC alone, and a terminal that has gone."""
    if not pressed.strip(ESC):
        return True
    return any(key in LEAVE for key in _OTHER_KEYS.sub(b"", pressed))


@contextmanager
def _keys(told: asyncio.Event) -> Iterator[None]:
    """A key is heard when it is pressed; what the terminal was like it is again afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    loop = asyncio.get_running_loop()

    def hear() -> None:
        if leaves(os.read(keyboard, 32)):
            told.set()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, hear)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
