"""`rota workers` and `rota drain`: list the workers, and ask one to drain."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, OK, exit_code_of, exit_with, print_error, print_note
from rota.cli.format import owner
from rota.cli.target import Target, with_target
from rota.errors import WorkerNotFound

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.database import Database
    from rota.store.read.runs import WorkerDetailRow, WorkerRow

STATE_STYLES = {
    "active": "green",
    "draining": "cyan",
    "silent": "yellow",
    "stopped": "dim",
    "dead": "red",
}

MIN_SHOWN_LAG_SECONDS = 0.1
"""Event-loop lag from which the column is shown."""

WIDE_TERMINAL_COLUMNS = 100
"""Terminal width from which all columns fit."""

POLL_SECONDS = 0.2


class WorkerIdParameter(click.IntRange):
    name = "worker's number"


WORKER_ID = WorkerIdParameter(1, 2**63 - 1)


@click.command()
@with_target
@click.option(
    "--all",
    "include_ended",
    is_flag=True,
    help="Also list workers that stopped or died within a day.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def workers(target: Target, include_ended: bool, as_json: bool) -> None:
    """List the workers: queues, load and last heartbeat.

    A silent worker is late with its heartbeat. If it stays silent, another worker declares it dead and
    takes back its jobs.
    """
    from rota.store.read import runs

    async def query(app: Rota) -> tuple[list[WorkerDetailRow], int, datetime, float]:
        database = (await app.open()).database
        found = await database.run(runs.workers(include_ended=include_ended))
        ended_count = (
            0
            if found or include_ended
            else len(await database.run(runs.workers(include_ended=True)))
        )
        [now] = await database.run(runs.database_time())
        return found, ended_count, now, app.settings.dead_after

    found, ended_count, now, dead_after = target.run(query)
    silent = {each.worker for each in found if _is_silent(each, now, dead_after)}
    if as_json:
        documents = [output.fields(each, stored=("metadata",)) for each in found]
        output.print_json([{**each, "silent": each["worker"] in silent} for each in documents])
    elif found:
        _print_workers(found, silent, now)
        _print_silent(found, silent, now)
    else:
        hint = (
            f" ({ended_count} stopped or died within a day; list them with --all)"
            if ended_count
            else ""
        )
        click.echo(f"no worker is running{hint}; start one with `rota worker MODULE:APP`")


def _is_silent(worker: WorkerDetailRow, now: datetime, dead_after: float) -> bool:
    return worker.ended is None and (now - worker.last_beat).total_seconds() > dead_after


def _print_workers(found: list[WorkerDetailRow], silent: set[int], now: datetime) -> None:
    """Print a table without empty columns, and without some more on a narrow terminal."""
    any_ended = any(each.ended for each in found)
    columns = {
        "worker": [output.cell(each.worker, _ended_style(each)) for each in found],
        "state": [_state(each, silent, now) for each in found],
        "host": [output.cell(each.host, _ended_style(each)) for each in found],
        "process": [output.cell(each.pid, _ended_style(each)) for each in found],
        "version": [output.cell(each.version, _ended_style(each)) for each in found],
        "queues": [output.cell(", ".join(each.queues), _ended_style(each)) for each in found],
        "running": [_running(each) for each in found],
        "heartbeat": [_heartbeat_cell(each, silent, now) for each in found],
        "lag": [_lag(each) for each in found],
        "up": [
            output.cell(output.format_age(each.started, each.ended or now), _ended_style(each))
            for each in found
        ],
        "charged": [_charged_jobs(each) for each in found],
        "metadata": [output.cell(_metadata(each.metadata), _ended_style(each)) for each in found],
    }
    shown = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    hidden = []
    is_narrow = output.console().width < WIDE_TERMINAL_COLUMNS
    if is_narrow:
        hidden = [
            name
            for name in (("process", "metadata") if any_ended else ("metadata",))
            if name in shown
        ]
        shown = {name: cells for name, cells in shown.items() if name not in hidden}
    grid = output.new_table(
        *shown,
        right=("worker", "process", "running", "heartbeat", "lag", "up", "charged"),
        free=("host", "version", "queues", "metadata"),
    )
    if is_narrow:
        grid.padding = (0, 1, 0, 0)
    for cells in zip(*shown.values(), strict=True):
        grid.add_row(*cells)
    output.print_renderable(grid)
    if hidden:
        output.hint(f"{' and '.join(hidden)}: in a wider terminal, or with --json")


def _ended_style(worker: WorkerDetailRow) -> str:
    return "dim" if worker.ended else ""


def _state(worker: WorkerDetailRow, silent: set[int], now: datetime) -> Text:
    state = worker.state
    if worker.worker in silent:
        state = "silent"
    elif state == "active" and worker.drain_requested is not None:
        state = "draining"  # the worker receives the request with its next heartbeat
    ago = "" if worker.ended is None else f" {output.format_age(worker.ended, now)} ago"
    return output.cell(f"{state}{ago}", STATE_STYLES.get(state, ""))


def _running(worker: WorkerDetailRow) -> Text:
    return output.cell("" if worker.ended else f"{worker.running}/{worker.capacity}")


def _heartbeat_cell(worker: WorkerDetailRow, silent: set[int], now: datetime) -> Text:
    if worker.ended is not None:
        return output.cell("")
    return output.cell(
        output.format_age(worker.last_beat, now), "yellow" if worker.worker in silent else ""
    )


def _lag(worker: WorkerDetailRow) -> Text:
    is_late = worker.lag >= MIN_SHOWN_LAG_SECONDS and worker.ended is None
    return output.cell(output.format_duration(worker.lag) if is_late else "", "yellow")


def _charged_jobs(worker: WorkerDetailRow) -> Text:
    """Return the number of jobs that may have killed the worker."""
    return output.cell(
        _format_jobs(len(worker.charged_jobs)) if worker.charged_jobs else "", "magenta"
    )


def _metadata(document: bytes) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in json.loads(document).items()
    )


def _print_silent(found: list[WorkerDetailRow], silent: set[int], now: datetime) -> None:
    any_alive = any(each.ended is None and each.worker not in silent for each in found)
    if any_alive:
        consequence = "if it stays silent, another worker declares it dead and takes back its jobs"
    else:
        consequence = (
            "no other worker can take back its jobs; start one with `rota worker MODULE:APP`"
        )
    for number, each in enumerate(each for each in found if each.worker in silent):
        if not number:
            click.echo()
        output.print_text(
            f"worker {each.worker} has been silent for "
            f"{output.format_age(each.last_beat, now)}: {consequence}",
            "yellow",
        )


@click.command()
@with_target
@click.argument("workers", metavar="WORKER...", type=WORKER_ID, nargs=-1, required=True)
@click.option(
    "--wait",
    "timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait until the workers have stopped; exit with code 1 after this time.",
)
def drain(target: Target, workers: tuple[int, ...], timeout: float | None) -> None:
    """Ask WORKER to drain: claim nothing more, finish its jobs and stop.

    Jobs that do not finish within its drain timeout return to their queue, and the attempt does not
    count. `rota workers` lists the worker numbers.
    """

    async def request_drain(app: Rota) -> int:
        database = (await app.open()).database
        code, requested = OK, list[int]()
        for worker in dict.fromkeys(workers):
            try:
                await app.drain(worker, by=owner.current_operator())
            except WorkerNotFound as error:
                print_error(str(error))
                code = exit_code_of(error)
            else:
                await _print_requested(database, worker, app.settings.dead_after)
                requested.append(worker)
        if timeout is None:
            return code
        results = await asyncio.gather(
            *(_wait_stopped(database, each, timeout) for each in requested)
        )
        return code if all(results) else FAILED

    exit_with(target.run(request_drain))


async def _print_requested(database: Database, worker: int, dead_after: float) -> None:
    found = await _read_worker(database, worker)
    if found is None or found.has_ended:
        click.echo(f"worker {worker} has been asked to stop")
        return
    request = (
        f"finish {_format_jobs(found.held_jobs)} and stop"
        if found.held_jobs
        else "stop; it holds no job"
    )
    click.echo(f"worker {worker} ({found.host}, process {found.pid}) has been asked to {request}")
    if found.silent_seconds > dead_after:
        silence = output.format_duration(found.silent_seconds)
        print_note(f"worker {worker} has been silent for {silence}; the request may not reach it")


async def _wait_stopped(database: Database, worker: int, timeout: float) -> bool:
    """Wait until the worker has stopped, and print its progress. Return True if it stopped normally."""
    began, last_held = time.monotonic(), -1
    while True:
        found = await _read_worker(database, worker)
        if found is None or found.state == "stopped":
            click.echo(f"worker {worker} has stopped")
            return True
        if found.state == "dead":
            print_error(f"worker {worker} died before it stopped; its jobs return to the queue")
            return False
        waited = time.monotonic() - began
        if waited >= timeout:
            print_error(
                f"worker {worker} is still running after {timeout:g} s with "
                f"{_format_jobs(found.held_jobs)}; it stops when they have ended or after its drain timeout"
            )
            return False
        if found.state == "draining" and found.held_jobs != last_held:
            last_held = found.held_jobs
            print_note(
                f"worker {worker} is draining: {_format_jobs(last_held)} left after {waited:.1f} s"
            )
        await asyncio.sleep(min(POLL_SECONDS, timeout - waited))


async def _read_worker(database: Database, worker: int) -> WorkerRow | None:
    from rota.store.read import runs

    return await database.fetch_one(runs.worker(worker))


def _format_jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{output.format_count(count)} jobs"
