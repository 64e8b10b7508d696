"""`rota autoscale`: how many workers each queue wants, and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint
from rota.cli.endings import FAILED, NOT_THERE, Told, leave
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.meters import Scaled


@click.command()
@with_target
@click.option("-q", "--queue", metavar="NAME", help="This queue alone.")
@click.option(
    "--target",
    "within",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Work a backlog off in so long; 60 unless ROTA_AUTOSCALE_TARGET says otherwise.",
)
@click.option("--min", "fewest", type=click.IntRange(0), metavar="N", help="At least so many.")
@click.option("--max", "most", type=click.IntRange(0), metavar="N", help="At most so many.")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Jobs at once on one worker; without, as on those that are there.",
)
@click.option("--check", is_flag=True, help="Exit code 1 if more are wanted than are there.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def autoscale(
    target: Target,
    queue: str | None,
    within: float | None,
    fewest: int | None,
    most: int | None,
    concurrency: int | None,
    check: bool,
    as_json: bool,
) -> None:
    """Say how many workers each queue wants.

    What comes in, times how long an attempt takes, keeps so many places busy; what has piled up, so many
    more, for it to be gone in time. `select rota.wanted_workers('QUEUE')` is the same as one number.
    """
    from rota.store import meters

    async def asking(app: Rota) -> list[Scaled]:
        settings = app.settings
        low = settings.autoscale_min if fewest is None else fewest
        high = settings.autoscale_max if most is None else most
        if low > high:
            raise click.UsageError(f"--min is {low}, above --max, which is {high}")
        query = meters.autoscale(within or settings.autoscale_target, low, high, concurrency, queue)
        return await (await app.open()).database.run(query)

    found = target.ask(asking)
    if queue is not None and not _is_known(found):
        raise Told(f"nothing is known of a queue {queue!r}; see `rota queues`", NOT_THERE)
    if as_json:
        paint.say_json([paint.fields(each) for each in found])
    elif found:
        _print(found)
    else:
        paint.say("no queue is known: nothing waits, and no worker is there")
    if check and any(each.wanted > each.workers for each in found):
        leave(FAILED)


def _is_known(found: list[Scaled]) -> bool:
    """Whether there is more to say of a queue than that somebody has asked for it."""
    return any(each.workers or each.backlog or each.arrivals or each.service for each in found)


def _print(found: list[Scaled]) -> None:
    table = paint.table(
        *("queue", "wanted", "workers", "arrivals", "each takes", "ready", "oldest", "running"),
        right=("wanted", "workers", "arrivals", "each takes", "ready", "oldest", "running"),
        free=("queue",),
    )
    for each in found:
        short = each.wanted > each.workers
        table.add_row(
            paint.text(each.queue),
            paint.text(each.wanted, "yellow" if short else ""),
            paint.text(each.workers or "none", "yellow" if short and not each.workers else ""),
            paint.text(f"{each.arrivals:.3g}/s" if each.arrivals else ""),
            paint.text(paint.span(each.service) if each.service is not None else "?"),
            paint.text(paint.number(each.backlog)),
            paint.text(paint.span(each.oldest) if each.backlog else ""),
            paint.text(paint.number(math.ceil(each.running))),
        )
    paint.show(table)
