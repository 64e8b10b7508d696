"""`rota autoscale`: the number of workers that each queue needs, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, NOT_FOUND, CommandError, exit_with
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota
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
@click.option(
    "--min", "min_workers", type=click.IntRange(0), metavar="N", help="Minimum number of workers."
)
@click.option(
    "--max", "max_workers", type=click.IntRange(0), metavar="N", help="Maximum number of workers."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Concurrency of one worker; default: that of the running workers.",
)
@click.option(
    "--check", is_flag=True, help="Exit with code 1 if more workers are desired than are running."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def autoscale(
    target: Target,
    queue: str | None,
    target_seconds: float | None,
    min_workers: int | None,
    max_workers: int | None,
    concurrency: int | None,
    check: bool,
    as_json: bool,
) -> None:
    """Show how many workers each queue needs.

    The number is enough for the arrival rate times the mean duration of an attempt, and to clear the
    backlog within the target time. `select rota.desired_workers('QUEUE')` returns it for one queue.
    """
    from rota.store import metrics

    async def fetch(app: Rota) -> list[DesiredWorkersRow]:
        settings = app.settings
        low = settings.autoscale_min if min_workers is None else min_workers
        high = settings.autoscale_max if max_workers is None else max_workers
        if low > high:
            raise click.UsageError(f"--min is {low}, above --max, which is {high}")
        query = metrics.desired_workers(
            target_seconds or settings.autoscale_target, low, high, concurrency, queue
        )
        return await (await app.open()).database.run(query)

    found = target.run(fetch)
    if queue is not None and not _is_known(found):
        raise CommandError(f"there is no queue {queue!r}; see `rota queues`", NOT_FOUND)
    if as_json:
        output.print_json([output.fields(each) for each in found])
    elif found:
        _print(found)
    else:
        output.print_text("no queue is known: no job is queued, and no worker is running")
    if check and any(each.desired > each.workers for each in found):
        exit_with(FAILED)


def _is_known(found: list[DesiredWorkersRow]) -> bool:
    """True if there is any data about the queue besides its name."""
    return any(
        each.workers or each.backlog or each.arrival_rate or each.mean_seconds for each in found
    )


def _print(found: list[DesiredWorkersRow]) -> None:
    grid = output.new_table(
        *("queue", "desired", "workers", "arrivals", "mean time", "queued", "oldest", "running"),
        right=("desired", "workers", "arrivals", "mean time", "queued", "oldest", "running"),
        free=("queue",),
    )
    for each in found:
        too_few = each.desired > each.workers
        grid.add_row(
            output.cell(each.queue),
            output.cell(each.desired, "yellow" if too_few else ""),
            output.cell(each.workers or "none", "yellow" if too_few and not each.workers else ""),
            output.cell(f"{each.arrival_rate:.3g}/s" if each.arrival_rate else ""),
            output.cell(
                output.format_duration(each.mean_seconds) if each.mean_seconds is not None else "?"
            ),
            output.cell(output.format_count(each.backlog)),
            output.cell(output.format_duration(each.oldest) if each.backlog else ""),
            output.cell(output.format_count(math.ceil(each.running))),
        )
    output.print_renderable(grid)
