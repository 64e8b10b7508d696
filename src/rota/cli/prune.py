"""`rota prune`: remove or count finished runs that are older than the retention settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import CommandError
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.engine.maintenance.pruner import PrunedBatch
    from rota.model.retention import Retention
    from rota.store.database import Database
    from rota.store.retention import PrunableRow

Totals = dict[tuple[str | None, str], tuple[int, int]]

TURN_TIMEOUT_SECONDS = 30.0
"""Time to wait for another process that is removing runs; each batch takes a fraction of a second."""


@click.command()
@with_target
@click.option(
    "--dry-run", is_flag=True, help="Remove nothing; print the runs that would be removed."
)
@click.option(
    "--retention",
    metavar="TEXT",
    help="Retention rules, in place of ROTA_RETENTION: '30d succeeded=7d; images: 1d'.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def prune(target: Target, dry_run: bool, retention: str | None, as_json: bool) -> None:
    """Remove finished runs that are older than ROTA_RETENTION. Workers do this automatically."""
    from rota.model.retention import Retention

    override = None if retention is None else Retention.parse(retention)

    async def prune_runs(app: Rota) -> Totals:
        rules = override or Retention.parse(app.settings.retention)
        if as_json:
            return await _prune(app, rules, dry_run, lambda words: None)
        with output.console().status("looking for old runs") as status:
            return await _prune(app, rules, dry_run, status.update)

    totals = target.run(prune_runs)
    if as_json:
        output.print_json([output.fields(each) for each in _rows(totals)])
        return
    if not totals:
        output.print_text("no finished run is old enough to be removed")
        return
    _print(_rows(totals))
    output.print_text(f"{_format_totals(totals)} {'would be removed' if dry_run else 'removed'}")


async def _prune(
    app: Rota, retention: Retention, dry_run: bool, on_progress: Callable[[str], None]
) -> Totals:
    """Remove or count all prunable runs, batch by batch."""
    from rota.model.retention import FOREVER

    database = (await app.open()).database
    totals: Totals = {}
    if retention.min_age == FOREVER:
        return totals
    # Twice: a run can be removed only after the run it belongs to. A dry run changes nothing, so
    # once.
    for _ in range(1 if dry_run else 2):
        position, more = 0, True
        while more:
            pruned = await _prune_batch(database, retention, position, dry_run)
            position, more = pruned.position, pruned.has_more
            for row in pruned.rows:
                runs, jobs = totals.get((row.queue, row.outcome), (0, 0))
                totals[row.queue, row.outcome] = runs + row.runs, jobs + row.jobs
            on_progress(f"{_format_totals(totals)} so far")
    return totals


async def _prune_batch(
    database: Database, retention: Retention, position: int, dry_run: bool
) -> PrunedBatch:
    """Prune one batch, as soon as no other process holds the lock."""
    from rota.engine.maintenance.pruner import prune

    deadline = time.monotonic() + TURN_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        pruned = await prune(database, retention, position, dry_run=dry_run)
        if pruned is not None:
            return pruned
        await asyncio.sleep(0.02)
    raise CommandError(
        f"another process has been removing runs for {TURN_TIMEOUT_SECONDS:g} s without a pause; "
        "try again later"
    )


def _rows(totals: Totals) -> list[PrunableRow]:
    """Return rows by queue and outcome; runs with several queues are last."""
    from rota.store.retention import PrunableRow

    order = sorted(totals, key=lambda each: (each[0] is None, each[0] or "", each[1]))
    return [PrunableRow(*each, *totals[each]) for each in order]


def _print(rows: list[PrunableRow]) -> None:
    grid = output.new_table(
        "queue", "outcome", "runs", "jobs", right=("runs", "jobs"), free=("queue",)
    )
    for row in rows:
        grid.add_row(
            output.cell("several", "dim") if row.queue is None else output.cell(row.queue),
            output.state_cell(row.outcome),
            output.cell(output.format_count(row.runs)),
            output.cell(output.format_count(row.jobs)),
        )
    output.print_renderable(grid)


def _format_totals(totals: Totals) -> str:
    runs = sum(runs for runs, _ in totals.values())
    jobs = sum(jobs for _, jobs in totals.values())
    return (
        f"{output.format_count(runs)} {'run' if runs == 1 else 'runs'} "
        f"of {output.format_count(jobs)} {'job' if jobs == 1 else 'jobs'}"
    )
