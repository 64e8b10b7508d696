"""`rota workers` and `drain`: who works, who has left, and how one is asked to."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.endings import FAILED, OK, code_of, leave, note, tell
from rota.cli.target import Target, with_target
from rota.errors import WorkerNotFound

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.database import Database
    from rota.store.views import WorkerDetail, WorkerLine

STATES = {
    "active": "green",
    "draining": "cyan",
    "silent": "yellow",
    "stopped": "dim",
    "dead": "red",
}

NOTABLE = 0.1
"""Seconds an event loop is late that are worth a column."""

ROOMY = 100
"""Columns of a terminal that has room for everything."""

LOOK_EVERY = 0.2


class WorkerId(click.IntRange):
    name = "worker's number"


WORKER = WorkerId(1, 2**63 - 1)


@click.command()
@with_target
@click.option("--all", "gone", is_flag=True, help="Also those that left or died within a day.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def workers(target: Target, gone: bool, as_json: bool) -> None:
    """List the workers: what each serves, how busy it is, when it was last heard of.

    A silent one is late with its beat. If it stays so, another worker takes it for dead and its jobs back.
    """
    from rota.store import views

    async def asking(app: Rota) -> tuple[list[WorkerDetail], int, datetime, float]:
        database = (await app.open()).database
        found = await database.run(views.workers(gone=gone))
        others = 0 if found or gone else len(await database.run(views.workers(gone=True)))
        [now] = await database.run(views.clock())
        return found, others, now, app.settings.dead_after

    found, others, now, patience = target.ask(asking)
    silent = {each.worker for each in found if _is_silent(each, now, patience)}
    if as_json:
        documents = [paint.fields(each, stored=("metadata",)) for each in found]
        paint.say_json([{**each, "silent": each["worker"] in silent} for each in documents])
    elif found:
        _print_workers(found, silent, now)
        _print_silent(found, silent, now)
    else:
        known = f" ({others} left or died within a day: --all lists them)" if others else ""
        click.echo(f"no worker is there{known}; start one with `rota worker MODULE:APP`")


def _is_silent(worker: WorkerDetail, now: datetime, patience: float) -> bool:
    return worker.ended is None and (now - worker.beat).total_seconds() > patience


def _print_workers(found: list[WorkerDetail], silent: set[int], now: datetime) -> None:
    """Columns that would say nothing of any worker are left out, and some more where room is short."""
    gone = any(each.ended for each in found)
    columns = {
        "worker": [paint.text(each.worker, _quiet(each)) for each in found],
        "state": [_state(each, silent, now) for each in found],
        "host": [paint.text(each.host, _quiet(each)) for each in found],
        "process": [paint.text(each.pid, _quiet(each)) for each in found],
        "version": [paint.text(each.version, _quiet(each)) for each in found],
        "queues": [paint.text(", ".join(each.queues), _quiet(each)) for each in found],
        "running": [_running(each) for each in found],
        "beat": [_beat(each, silent, now) for each in found],
        "lag": [_lag(each) for each in found],
        "up": [
            paint.text(paint.age(each.started, each.ended or now), _quiet(each)) for each in found
        ],
        "blamed": [_blamed(each) for each in found],
        "metadata": [paint.text(_metadata(each.metadata), _quiet(each)) for each in found],
    }
    told = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    missing = []
    if paint.console().width < ROOMY:
        missing = [
            name for name in (("process", "metadata") if gone else ("metadata",)) if name in told
        ]
        told = {name: cells for name, cells in told.items() if name not in missing}
    table = paint.table(
        *told,
        right=("worker", "process", "running", "beat", "lag", "up", "blamed"),
        free=("host", "version", "queues", "metadata"),
    )
    for cells in zip(*told.values(), strict=True):
        table.add_row(*cells)
    paint.show(table)
    if missing:
        paint.hint(f"{' and '.join(missing)}: in a wider terminal, or with --json")


def _quiet(worker: WorkerDetail) -> str:
    return "dim" if worker.ended else ""


def _state(worker: WorkerDetail, silent: set[int], now: datetime) -> Text:
    state = worker.state
    if worker.worker in silent:
        state = "silent"
    elif state == "active" and worker.asked is not None:
        state = "draining"  # it hears of it with its next beat
    ago = "" if worker.ended is None else f" {paint.age(worker.ended, now)} ago"
    return paint.text(f"{state}{ago}", STATES.get(state, ""))


def _running(worker: WorkerDetail) -> Text:
    return paint.text("" if worker.ended else f"{worker.running}/{worker.capacity}")


def _beat(worker: WorkerDetail, silent: set[int], now: datetime) -> Text:
    if worker.ended is not None:
        return paint.text("")
    return paint.text(paint.age(worker.beat, now), "yellow" if worker.worker in silent else "")


def _lag(worker: WorkerDetail) -> Text:
    is_late = worker.lag >= NOTABLE and worker.ended is None
    return paint.text(paint.span(worker.lag) if is_late else "", "yellow")


def _blamed(worker: WorkerDetail) -> Text:
    """For how many of its jobs, which may have killed it."""
    return paint.text(_jobs(len(worker.blamed)) if worker.blamed else "", "magenta")


def _metadata(document: bytes) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in json.loads(document).items()
    )


def _print_silent(found: list[WorkerDetail], silent: set[int], now: datetime) -> None:
    heard = any(each.ended is None and each.worker not in silent for each in found)
    if heard:
        then = "if it stays so, another takes it for dead and its jobs back"
    else:
        then = "no other is there to take its jobs back; start one with `rota worker MODULE:APP`"
    for number, each in enumerate(each for each in found if each.worker in silent):
        if not number:
            click.echo()
        paint.say(
            f"worker {each.worker} has not been heard of for {paint.age(each.beat, now)}: {then}",
            "yellow",
        )


@click.command()
@with_target
@click.argument("workers", metavar="WORKER...", type=WORKER, nargs=-1, required=True)
@click.option(
    "--wait",
    "patience",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait until they have left, so long at most; else exit code 1.",
)
def drain(target: Target, workers: tuple[int, ...], patience: float | None) -> None:
    """Ask WORKER to take nothing more, finish what it runs, and leave.

    What it cannot finish within its grace goes back to its queue, the attempt uncounted. `rota workers` has
    the numbers.
    """

    async def draining(app: Rota) -> int:
        database = (await app.open()).database
        code, asked = OK, list[int]()
        for worker in dict.fromkeys(workers):
            try:
                await app.drain(worker, by=whom.operator())
            except WorkerNotFound as error:
                tell(str(error))
                code = code_of(error)
            else:
                await _say_asked(database, worker, app.settings.dead_after)
                asked.append(worker)
        if patience is None:
            return code
        left = await asyncio.gather(*(_left(database, each, patience) for each in asked))
        return code if all(left) else FAILED

    leave(target.ask(draining))


async def _say_asked(database: Database, worker: int, patience: float) -> None:
    found = await _look(database, worker)
    if found is None or found.has_ended:
        click.echo(f"worker {worker} has been asked to leave")
        return
    holds = f"finish {_jobs(found.held)} and leave" if found.held else "leave; it holds no job"
    click.echo(f"worker {worker} ({found.host}, process {found.pid}) has been asked to {holds}")
    if found.silent > patience:
        silence = paint.span(found.silent)
        note(
            f"worker {worker} has not been heard of for {silence}: perhaps it hears nothing either"
        )


async def _left(database: Database, worker: int, patience: float) -> bool:
    """Wait until it has left, and say how it goes. Has it, in order?"""
    began, said = time.monotonic(), -1
    while True:
        found = await _look(database, worker)
        if found is None or found.state == "stopped":
            click.echo(f"worker {worker} has left")
            return True
        if found.state == "dead":
            tell(f"worker {worker} died before it could leave: what it held goes to others")
            return False
        waited = time.monotonic() - began
        if waited >= patience:
            tell(
                f"worker {worker} is still there after {patience:g} s with {_jobs(found.held)}; it "
                "leaves by itself when they have ended or its grace is over"
            )
            return False
        if found.state == "draining" and found.held != said:
            said = found.held
            note(f"worker {worker} is draining: {_jobs(said)} left after {waited:.1f} s")
        await asyncio.sleep(min(LOOK_EVERY, patience - waited))


async def _look(database: Database, worker: int) -> WorkerLine | None:
    from rota.store import views

    return await database.one(views.worker(worker))


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{paint.number(count)} jobs"
