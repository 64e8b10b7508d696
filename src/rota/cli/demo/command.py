"""The command: options, signals, the view, and the end."""

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

from rota.cli import paint
from rota.cli.demo.scene import Scene
from rota.cli.demo.tally import Tally
from rota.cli.endings import database_errors_told
from rota.cli.target import Target

if TYPE_CHECKING:
    import socket

    from rich.console import Console
    from rich.live import Live

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DRAW_EVERY = 0.2
LOOK_EVERY = 0.1


@click.command()
@click.pass_context
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=60,
    metavar="N",
    show_default=True,
    help="How long it lasts.",
)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Where the dashboard is; the first free one from 8000 on, unless said.",
)
@click.option("--no-browser", is_flag=True, help="Open no browser.")
def demo(context: click.Context, seconds: float, port: int | None, no_browser: bool) -> None:
    """See it work: a flow, a monitor, the clock and jobs at speed on two workers, one of which is killed.

    It brings a PostgreSQL of its own and a dashboard to look at meanwhile; both are gone afterwards. Ctrl-C
    ends it at any moment. Without a terminal it says in words what happens.
    """
    from rota.cli.demo import summary
    from rota.cli.demo.stage import bind

    above = context.find_object(Target) or Target()
    if above.dsn or above.schema:
        raise click.UsageError(
            "the demo brings a database of its own: leave --dsn and --schema away"
        )
    # What this process would warn of, such as a worker that is gone, is in view anyway.
    logging.getLogger().addHandler(logging.NullHandler())
    console = paint.console()
    scene, tally = Scene(seconds), Tally()
    try:
        with _obeying() as told, database_errors_told():
            bound = bind(port)
            asyncio.run(_show(told, scene, tally, bound, console, browser=not no_browser))
        summary.show(tally)
    except OSError as error:
        # The terminal has gone, with everybody who looked; all else was taken down before this.
        if error.errno != errno.EIO:
            raise


class _Told:
    """Whether somebody has seen enough: a signal says so, at any moment, and more say no more."""

    def __init__(self) -> None:
        self.enough = False
        self._stop: asyncio.Task[None] | None = None

    def hear(self, *_: object) -> None:
        if not self.enough:
            self.enough = True
            self._cancel()

    def stops(self, task: asyncio.Task[None]) -> None:
        self._stop = task
        if self.enough:
            self._cancel()

    def _cancel(self) -> None:
        if self._stop is not None:
            # Wakes the loop, which may be asleep: the handler runs between two of its steps.
            self._stop.get_loop().call_soon_threadsafe(self._stop.cancel)


@contextmanager
def _obeying() -> Iterator[_Told]:
    """From here on a signal ends it in order, and once: leaving must not be interrupted by impatience."""
    told = _Told()
    before = {number: signal.signal(number, told.hear) for number in SIGNALS}
    try:
        yield told
    finally:
        for number, handler in before.items():
            # Whoever was impatient may still be, while Python itself ends.
            signal.signal(number, signal.SIG_IGN if told.enough else handler)


async def _show(
    told: _Told,
    scene: Scene,
    tally: Tally,
    bound: socket.socket,
    console: Console,
    *,
    browser: bool,
) -> None:
    from rota.cli.demo.play import Play
    from rota.cli.demo.stage import stage

    async def whole() -> None:
        async with _seen(scene, console, browser=browser), stage(scene, bound) as built:
            await Play(built, scene, tally).perform()

    performance = asyncio.create_task(whole())
    told.stops(performance)
    try:
        await performance
    except asyncio.CancelledError:
        if not performance.cancelled():
            raise


@asynccontextmanager
async def _seen(scene: Scene, console: Console, *, browser: bool) -> AsyncIterator[None]:
    """Have the scene in view, or told."""
    if not console.is_terminal:
        telling = asyncio.create_task(_tell(scene))
        try:
            yield
        finally:
            telling.cancel()
            _say(scene)
        return
    from rich.live import Live

    from rota.cli.demo.view import View

    opening = asyncio.create_task(_open(scene)) if browser and _has_browser() else None
    live = Live(View(scene), console=console, auto_refresh=False, transient=True)
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
        await asyncio.sleep(DRAW_EVERY)


async def _tell(scene: Scene) -> None:
    address = flow = None
    while True:
        if address is None and scene.began is not None and scene.address:
            address = scene.address
            click.echo(f"dashboard       {address}")
        if flow is None and address is not None and scene.link:
            flow = scene.link
            click.echo(f"a running flow  {flow}")
        _say(scene)
        sys.stdout.flush()
        await asyncio.sleep(LOOK_EVERY)


def _say(scene: Scene) -> None:
    happened, scene.told[:] = list(scene.told), []
    for each in happened:
        click.echo(f"{each.after:5.1f} s  {each.words}")


def _has_browser() -> bool:
    """Not one that would draw its pages into this terminal."""
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


async def _open(scene: Scene) -> None:
    """The page of a running flow, once there is one."""
    await scene.shown.wait()
    # Some browsers are waited for until somebody closes them: in a thread that keeps nobody from ending.
    threading.Thread(target=webbrowser.open, args=(scene.link or "",), daemon=True).start()
