"""`rota autoscale`: the number of workers that each queue needs, and why."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, exit_with
from rota.cli.table import Column, Table, json_option, list_command
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota.operations.queues import DesiredWorkersList
    from rota.store.metrics import DesiredWorkersRow


@click.command()
@with_target
@click.option("-q", "--queue", metavar="NAME", help="Only this queue.")
@click.option(
    "--target",
    "target_seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Seconds to clear a backlog; default: ROTA_AUTOSCALE_TARGET, else 60.",
)
@click.option("--min", type=click.IntRange(0), metavar="N", help="Minimum number of workers.")
@click.option("--max", type=click.IntRange(0), metavar="N", help="Maximum number of workers.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Concurrency of one worker; default: that of the running workers.",
)
@click.option(
    "--check", is_flag=True, help="Exit with code 1 if more workers are desired than are running."
)
@json_option
def autoscale(
    target: Target, target_seconds: float | None, check: bool, as_json: bool, **options: Any
) -> None:
    """Show how many workers each queue needs.

    The number is enough for the arrival rate times the mean duration of an attempt, and to clear the
    backlog within the target time. `select rota.desired_workers('QUEUE')` returns it for one queue.
    """
    from rota.operations.queues import autoscale as autoscale_operation

    def show(document: DesiredWorkersList, now: datetime) -> None:
        if document.queues:
            DESIRED_WORKERS.print(document.queues, now)
        else:
            output.print_text("no queue is known: no job is queued, and no worker is running")

    query = {**options, "target": target_seconds}
    found = list_command(target, autoscale_operation, show, as_json=as_json, query=query).queues
    if check and any(map(_has_too_few, found)):
        exit_with(FAILED)


def _has_too_few(row: DesiredWorkersRow) -> bool:
    return row.desired > row.workers


DESIRED_WORKERS = Table["DesiredWorkersRow"](
    Column("queue", lambda row, now: row.queue, shrinks=True),
    Column(
        "desired",
        lambda row, now: row.desired,
        lambda row: "yellow" if _has_too_few(row) else "",
        right=True,
    ),
    Column(
        "workers",
        lambda row, now: row.workers or "none",
        lambda row: "yellow" if _has_too_few(row) and not row.workers else "",
        right=True,
    ),
    Column(
        "arrivals",
        lambda row, now: f"{row.arrival_rate:.3g}/s" if row.arrival_rate else "",
        right=True,
    ),
    Column(
        "mean time",
        lambda row, now: (
            "?" if row.mean_seconds is None else output.format_duration(row.mean_seconds)
        ),
        right=True,
    ),
    Column("queued", lambda row, now: output.format_count(row.backlog), right=True),
    Column(
        "oldest",
        lambda row, now: output.format_duration(row.oldest) if row.backlog else "",
        right=True,
    ),
    Column("running", lambda row, now: output.format_count(math.ceil(row.running)), right=True),
)
