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
from rota.cli.table import WIDE, Column, Table, json_option, list_command
from rota.cli.target import Target, operator_context, with_target
from rota.errors import WorkerNotFound
from rota.model.text import counted

if TYPE_CHECKING:
    from rota import Rota
    from rota.operations.declare import OperationContext
    from rota.operations.workers import WorkerDetail, WorkerList
    from rota.store.read.runs import WorkerDetailRow

STATE_STYLES = {
    "active": "green",
    "draining": "cyan",
    "silent": "yellow",
    "stopped": "dim",
    "dead": "red",
}

MIN_SHOWN_LAG_SECONDS = 0.1
"""Event-loop lag from which the column is shown."""

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
@json_option
def workers(target: Target, include_ended: bool, as_json: bool) -> None:
    """List the workers: queues, load and last heartbeat.

    A silent worker is late with its heartbeat. If it stays silent, another worker declares it dead and
    takes back its jobs.
    """
    from rota.operations.workers import WorkerListQuery, list_workers

    def show(document: WorkerList, now: datetime) -> None:
        if document.workers:
            WORKERS.print(document.workers, now)
            _print_silent(document.workers, now)
            return
        ended = 0
        if not include_ended:
            ended = len(target.perform(list_workers, query=WorkerListQuery(True))[0].workers)
        hint = f" ({ended} stopped or died within a day; list them with --all)" if ended else ""
        click.echo(f"no worker is running{hint}; start one with `rota worker MODULE:APP`")

    query = {"include_ended": include_ended}
    list_command(target, list_workers, show, as_json=as_json, query=query)


def _ended_style(worker: WorkerDetailRow) -> str:
    return "dim" if worker.ended else ""


def _state(worker: WorkerDetailRow, now: datetime) -> str:
    ago = "" if worker.ended is None else f" {output.format_age(worker.ended, now)} ago"
    return f"{worker.state}{ago}"


def _heartbeat(worker: WorkerDetailRow, now: datetime) -> str:
    return "" if worker.ended else output.format_age(worker.last_beat, now)


def _lag(worker: WorkerDetailRow, now: datetime) -> str:
    is_late = worker.lag >= MIN_SHOWN_LAG_SECONDS and worker.ended is None
    return output.format_duration(worker.lag) if is_late else ""


def _metadata(worker: WorkerDetailRow, now: datetime) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in json.loads(bytes(worker.metadata)).items()
    )


WORKERS = Table["WorkerDetailRow"](
    Column("worker", lambda row, now: row.worker, _ended_style, right=True),
    Column("state", _state, lambda row: STATE_STYLES.get(row.state, "")),
    Column("host", lambda row, now: row.host, _ended_style, shrinks=True),
    Column("process", lambda row, now: row.pid, _ended_style, right=True, from_width=WIDE),
    Column("version", lambda row, now: row.version, _ended_style, shrinks=True),
    Column("queues", lambda row, now: ", ".join(row.queues), _ended_style, shrinks=True),
    Column(
        "running",
        lambda row, now: "" if row.ended else f"{row.running}/{row.capacity}",
        right=True,
    ),
    Column(
        "heartbeat", _heartbeat, lambda row: "yellow" if row.state == "silent" else "", right=True
    ),
    Column("lag", _lag, "yellow", right=True),
    Column(
        "up",
        lambda row, now: output.format_age(row.started, row.ended or now),
        _ended_style,
        right=True,
    ),
    # Jobs that may have killed the worker.
    Column(
        "charged",
        lambda row, now: counted(len(row.charged_jobs), "job") if row.charged_jobs else "",
        "magenta",
        right=True,
    ),
    Column("metadata", _metadata, _ended_style, shrinks=True, from_width=WIDE),
)


def _print_silent(found: list[WorkerDetailRow], now: datetime) -> None:
    if any(each.ended is None and each.state != "silent" for each in found):
        consequence = "if it stays silent, another worker declares it dead and takes back its jobs"
    else:
        consequence = (
            "no other worker can take back its jobs; start one with `rota worker MODULE:APP`"
        )
    for number, each in enumerate(each for each in found if each.state == "silent"):
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
        from rota.operations.workers import drain_worker

        context = operator_context(app)
        code, requested = OK, list[int]()
        for worker in dict.fromkeys(workers):
            try:
                await drain_worker.call(context, worker=worker)
            except WorkerNotFound as error:
                print_error(str(error))
                code = exit_code_of(error)
            else:
                await _print_requested(context, worker)
                requested.append(worker)
        if timeout is None:
            return code
        results = await asyncio.gather(
            *(_wait_stopped(context, each, timeout) for each in requested)
        )
        return code if all(results) else FAILED

    exit_with(target.run(request_drain))


async def _print_requested(context: OperationContext, worker: int) -> None:
    found = await _read_worker(context, worker)
    if found is None or found.ended is not None:
        click.echo(f"worker {worker} has been asked to stop")
        return
    request = (
        f"finish {counted(found.held_jobs, 'job')} and stop"
        if found.held_jobs
        else "stop; it holds no job"
    )
    click.echo(f"worker {worker} ({found.host}, process {found.pid}) has been asked to {request}")
    if found.state == "silent":
        silence = output.format_duration(found.silent_seconds)
        print_note(f"worker {worker} has been silent for {silence}; the request may not reach it")


async def _wait_stopped(context: OperationContext, worker: int, timeout: float) -> bool:
    """Wait until the worker has stopped, and print its progress. Return True if it stopped normally."""
    began, last_held = time.monotonic(), -1
    while True:
        found = await _read_worker(context, worker)
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
                f"{counted(found.held_jobs, 'job')}; it stops when they have "
                "ended or after its drain timeout"
            )
            return False
        if found.state == "draining" and found.held_jobs != last_held:
            last_held = found.held_jobs
            print_note(
                f"worker {worker} is draining: {counted(last_held, 'job')} left after {waited:.1f} s"
            )
        await asyncio.sleep(min(POLL_SECONDS, timeout - waited))


async def _read_worker(context: OperationContext, worker: int) -> WorkerDetail | None:
    from rota.operations.workers import show_worker

    try:
        return await show_worker.call(context, worker=worker)
    except WorkerNotFound:
        return None  # its row has been deleted
