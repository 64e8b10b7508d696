"""`rota demo`: thousands of jobs, a worker, a few failures, and the figures.

It runs on an embedded PostgreSQL in a directory that is made for it and removed after it, or with
`--dsn` in the schema `rota_demo` of that database. The queue's name is new each time, so any number of
demos can run side by side. Whatever ends it, nothing keeps running.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from rota import Context, Retry, Rota, Task
from rota.cli import loops, paint
from rota.cli.endings import database_errors_told
from rota.cli.target import Target, with_database
from rota.store import views

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SCHEMA = "rota_demo"
FLAKY = 20
"""Jobs that fail at first."""

CHUNK = 5000
"""Jobs started in one call."""

LOOKS = 100
"""Single jobs started and waited for, one after the other."""


@click.command()
@with_database
@click.option(
    "--jobs",
    type=click.IntRange(1, 10_000_000),
    default=20_000,
    metavar="N",
    show_default=True,
    help="Jobs to run.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60,
    metavar="N",
    show_default=True,
    help="At most so long.",
)
def demo(target: Target, jobs: int, seconds: float) -> None:
    """See it work: jobs, retries and a key, on an embedded PostgreSQL that is gone afterwards.

    With --dsn it uses the schema rota_demo of that database instead, and leaves its rows there.
    """
    console = paint.console()
    schema = target.schema or SCHEMA
    # Whoever ends it ends it the same way: what was begun is undone.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with database_errors_told(), _database(target.dsn, console) as dsn:
            tally = loops.run(perform(dsn, schema, jobs, seconds, console))
    except KeyboardInterrupt:
        paint.say("stopped before it began")
        return
    finally:
        signal.signal(signal.SIGTERM, before)
    _print_figures(tally)
    if target.dsn is not None:
        paint.say(f"its rows are in schema {schema}, until you drop it", "dim")


@contextmanager
def _database(dsn: str | None, console: Console) -> Iterator[str]:
    if dsn is not None:
        yield dsn
        return
    from rota.localpg import LocalPostgres

    # Short, because the path of a socket is bounded.
    home = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    server = LocalPostgres(home / "pg")
    try:
        home.chmod(0o711)  # as root, the server runs as another user and has to pass through
        with console.status("starting a PostgreSQL of its own"):
            dsn = server.start()
        yield dsn
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@dataclass(slots=True)
class Tally:
    """What has happened so far. The tasks count by themselves: in a demo of speed, being told of every
    job would be most of the work."""

    wanted: int
    started: int = 0
    starting: float = 0.0
    key_made: list[bool] = field(default_factory=list)
    done: int = 0
    retried: int = 0
    working: float = 0.0
    states: dict[str, int] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return self.states == {"succeeded": self.wanted}


def tasks(app: Rota, queue: str, tally: Tally) -> tuple[Task[[int], int], Task[[int], int]]:
    """A task that works, and one that does at its third attempt."""

    @app.task(queue=queue)
    async def hello(number: int) -> int:
        tally.done += 1
        return number

    @app.task(queue=queue, retry=Retry(attempts=3, wait=0.2, backoff=1.5))
    async def flaky(ctx: Context, number: int) -> int:
        if ctx.attempt < 3:
            tally.retried += 1
            raise ConnectionError("somebody else's service is down")
        tally.done += 1
        return number

    return hello, flaky


async def perform(dsn: str, schema: str, jobs: int, seconds: float, console: Console) -> Tally:
    """The whole show, until it is over, the time is, or somebody has seen enough."""
    app = Rota(dsn, schema=schema)
    tally = Tally(wanted=jobs + FLAKY + 1)
    queue = f"demo-{secrets.token_hex(4)}"
    hello, flaky = tasks(app, queue, tally)
    loop = asyncio.get_running_loop()

    async def show() -> None:
        with _progress(console) as progress:
            await app.migrate()
            await _start(app, queue, hello, flaky, jobs, tally, progress)
            async with app.worker():
                await _work(app, queue, tally, progress)
                await _time_single_jobs(hello, tally, progress)

    performance = asyncio.create_task(show())

    def enough() -> None:
        # Once: leaving takes a moment, and must not be interrupted by impatience.
        if not performance.cancelling():
            performance.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, enough)
    loop.call_later(seconds, enough)
    try:
        await performance
    except asyncio.CancelledError:
        if not performance.cancelled():
            raise
    finally:
        await app.close()
    return tally


def _progress(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", style="dim"),
        BarColumn(
            bar_width=40, style="bright_black", complete_style="cyan", finished_style="green"
        ),
        TextColumn("{task.fields[words]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


async def _start(
    app: Rota,
    queue: str,
    hello: Task[[int], int],
    flaky: Task[[int], int],
    jobs: int,
    tally: Tally,
    progress: Progress,
) -> None:
    bar = progress.add_task("starting", total=jobs, words="")
    calls = [flaky.call(number) for number in range(FLAKY)]
    await app.start_many(calls)
    for _ in range(2):
        run = await hello.using(key=f"order-42 of {queue}").start(42)
        tally.key_made.append(run.created)
    began = time.perf_counter()
    for first in range(0, jobs, CHUNK):
        chunk = range(first, min(first + CHUNK, jobs))
        await app.start_many([hello.call(number) for number in chunk])
        tally.started += len(chunk)
        tally.starting = time.perf_counter() - began
        words = f"{paint.number(tally.started)}  {_speed(tally.started, tally.starting)}"
        progress.update(bar, completed=tally.started, words=words)


async def _work(app: Rota, queue: str, tally: Tally, progress: Progress) -> None:
    """Look on until the database says that every job has succeeded."""
    database = (await app.open()).database
    bar = progress.add_task("working", total=tally.wanted, words="")
    began = time.perf_counter()
    while not tally.is_complete:
        before = tally.done
        await asyncio.sleep(0.02)
        if tally.done > before and tally.done <= tally.wanted - FLAKY:
            # The last ones wait between their attempts, on purpose; that is no working time.
            tally.working = time.perf_counter() - began
        words = f"{paint.number(tally.done)}  {_speed(tally.done, tally.working)}"
        progress.update(bar, completed=tally.done, words=words)
        if tally.done >= tally.wanted:
            tally.states = dict(await database.run(views.tally(queue)))


async def _time_single_jobs(hello: Task[[int], int], tally: Tally, progress: Progress) -> None:
    bar = progress.add_task("one by one", total=LOOKS, words="")
    for number in range(LOOKS):
        began = time.perf_counter()
        await (await hello.start(number)).result()
        tally.latencies.append(time.perf_counter() - began)
        words = f"{paint.span(statistics.median(tally.latencies))} from start to result"
        progress.update(bar, completed=number + 1, words=words)


def _speed(jobs: int, seconds: float) -> str:
    return (
        f"{paint.number(int(round(jobs / seconds, -2 if jobs > 2000 else 0)))} jobs/s"
        if seconds
        else ""
    )


def _print_figures(tally: Tally) -> None:
    table = paint.table("", "", "words", free=("words",))
    table.show_header = False

    def figure(name: str, what: str, words: str) -> None:
        rest = paint.text(words, "dim")
        rest.no_wrap = False
        table.add_row(paint.text(name, "dim"), paint.text(what), rest)

    if tally.started:
        figure(
            "started",
            _speed(tally.started, tally.starting),
            f"{paint.number(tally.started)} in {paint.span(tally.starting)}, each durable once started",
        )
    if tally.done:
        worked = min(tally.done, tally.wanted)
        figure(
            "worked",
            _speed(worked, tally.working),
            f"{paint.number(worked)} in {paint.span(tally.working)}, one process",
        )
    if tally.retried:
        figure(
            "retried",
            paint.number(tally.retried),
            f"{FLAKY} jobs fail twice and succeed at their third attempt",
        )
    if tally.key_made == [True, False]:
        figure("key", "1 run", "two starts with the same key")
    if tally.latencies:
        figure(
            "latency",
            paint.span(statistics.median(tally.latencies)),
            f"from start to result, one job at a time; the slowest of {len(tally.latencies)} "
            f"{paint.span(max(tally.latencies))}",
        )
    paint.show(table)
    if not tally.is_complete:
        paint.say(
            f"stopped early, after {paint.number(tally.done)} of {paint.number(tally.wanted)} jobs"
        )
