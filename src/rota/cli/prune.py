"""`rota prune`: finished runs that are older than the settings say, removed now, or only counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint
from rota.cli.endings import Told
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.engine.prune import Pruned
    from rota.model.retention import Keep
    from rota.store.database import Database
    from rota.store.retention import Line

Totals = dict[tuple[str | None, str], tuple[int, int]]

PATIENCE = 30.0
"""Seconds to wait for whoever is removing; each batch of theirs takes a fraction of one."""


@click.command()
@with_target
@click.option("--dry-run", is_flag=True, help="Remove nothing, say what would go.")
@click.option(
    "--keep",
    metavar="TEXT",
    help="How long to keep what, instead of what is set: '30d succeeded=7d; images: 1d'.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def prune(target: Target, dry_run: bool, keep: str | None, as_json: bool) -> None:
    """Remove finished runs that are older than ROTA_KEEP says. Workers do this by themselves."""
    from rota.model.retention import Keep

    given = None if keep is None else Keep.parse(keep)

    async def pruning(app: Rota) -> Totals:
        rules = given or Keep.parse(app.settings.keep)
        if as_json:
            return await _prune(app, rules, dry_run, lambda words: None)
        with paint.console().status("looking for old runs") as status:
            return await _prune(app, rules, dry_run, status.update)

    totals = target.ask(pruning)
    if as_json:
        paint.say_json([paint.fields(each) for each in _lines(totals)])
        return
    if not totals:
        paint.say("no finished run is old enough to go")
        return
    _print(_lines(totals))
    paint.say(f"{_count(totals)} {'would go' if dry_run else 'removed'}")


async def _prune(app: Rota, keep: Keep, dry_run: bool, show: Callable[[str], None]) -> Totals:
    """All of it, batch by batch."""
    from rota.model.retention import FOREVER

    database = (await app.open()).database
    totals: Totals = {}
    if keep.shortest == FOREVER:
        return totals
    # Twice: what a run was a part of may have gone only just now. Looking does not change that.
    for _ in range(1 if dry_run else 2):
        position, more = 0, True
        while more:
            pruned = await _in_turn(database, keep, position, dry_run)
            position, more = pruned.position, pruned.more
            for line in pruned.lines:
                runs, jobs = totals.get((line.queue, line.outcome), (0, 0))
                totals[line.queue, line.outcome] = runs + line.runs, jobs + line.jobs
            show(f"{_count(totals)} so far")
    return totals


async def _in_turn(database: Database, keep: Keep, position: int, dry_run: bool) -> Pruned:
    """One batch, when whoever is at it has done his."""
    from rota.engine.prune import prune

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pruned = await prune(database, keep, position, only_look=dry_run)
        if pruned is not None:
            return pruned
        await asyncio.sleep(0.02)
    raise Told(
        f"somebody else has been removing runs for {PATIENCE:g} s without a pause; try again later"
    )


def _lines(totals: Totals) -> list[Line]:
    """By queue and outcome, those of several queues last."""
    from rota.store.retention import Line

    order = sorted(totals, key=lambda each: (each[0] is None, each[0] or "", each[1]))
    return [Line(*each, *totals[each]) for each in order]


def _print(lines: list[Line]) -> None:
    table = paint.table("queue", "outcome", "runs", "jobs", right=("runs", "jobs"), free=("queue",))
    for line in lines:
        table.add_row(
            paint.text("several", "dim") if line.queue is None else paint.text(line.queue),
            paint.state(line.outcome),
            paint.text(paint.number(line.runs)),
            paint.text(paint.number(line.jobs)),
        )
    paint.show(table)


def _count(totals: Totals) -> str:
    runs = sum(runs for runs, _ in totals.values())
    jobs = sum(jobs for _, jobs in totals.values())
    return (
        f"{paint.number(runs)} {'run' if runs == 1 else 'runs'} "
        f"of {paint.number(jobs)} {'job' if jobs == 1 else 'jobs'}"
    )
