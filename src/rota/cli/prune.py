"""`rota prune`: remove or count finished runs that are older than the retention settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.table import Column, Table, json_option
from rota.cli.target import Target, operator_context, with_target
from rota.model.text import counted

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.retention import PrunableRow

Totals = dict[tuple[str | None, str], tuple[int, int]]


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
@json_option
def prune(target: Target, dry_run: bool, retention: str | None, as_json: bool) -> None:
    """Remove finished runs that are older than ROTA_RETENTION. Workers do this automatically."""

    async def prune_all(app: Rota) -> Totals:
        if as_json:
            return await _prune(app, retention, dry_run, lambda words: None)
        with output.console().status("looking for old runs") as status:
            return await _prune(app, retention, dry_run, status.update)

    totals = target.run(prune_all)
    if as_json:
        from rota.operations.maintenance import PrunedBatchDocument

        output.print_json(PrunedBatchDocument(_rows(totals), None))
        return
    if not totals:
        output.print_text("no finished run is old enough to be removed")
        return
    PRUNED_RUNS.print(_rows(totals), datetime.now(UTC))
    output.print_text(f"{_format_totals(totals)} {'would be removed' if dry_run else 'removed'}")


async def _prune(
    app: Rota, retention: str | None, dry_run: bool, on_progress: Callable[[str], None]
) -> Totals:
    """Remove or count all prunable runs, batch by batch."""
    from rota.operations.maintenance import PruneRunsRequest, prune_runs

    totals: Totals = {}
    # Twice: a run can be removed only after the run it belongs to. A dry run changes nothing, so
    # once.
    for _ in range(1 if dry_run else 2):
        cursor, is_first = None, True
        while is_first or cursor is not None:
            body = PruneRunsRequest(retention, dry_run, cursor)
            batch = await prune_runs.call(operator_context(app), body=body)
            cursor, is_first = batch.next, False
            for row in batch.pruned:
                runs, jobs = totals.get((row.queue, row.outcome), (0, 0))
                totals[row.queue, row.outcome] = runs + row.runs, jobs + row.jobs
            on_progress(f"{_format_totals(totals)} so far")
    return totals


def _rows(totals: Totals) -> list[PrunableRow]:
    """Return rows by queue and outcome; runs with several queues are last."""
    from rota.store.retention import PrunableRow

    order = sorted(totals, key=lambda each: (each[0] is None, each[0] or "", each[1]))
    return [PrunableRow(*each, *totals[each]) for each in order]


PRUNED_RUNS: Table[PrunableRow] = Table(
    Column(
        "queue",
        lambda row, now: "several" if row.queue is None else row.queue,
        lambda row: "dim" if row.queue is None else "",
        shrinks=True,
    ),
    Column("outcome", lambda row, now: row.outcome, lambda row: output.STATE_STYLES[row.outcome]),
    Column("runs", lambda row, now: output.format_count(row.runs), right=True),
    Column("jobs", lambda row, now: output.format_count(row.jobs), right=True),
)


def _format_totals(totals: Totals) -> str:
    runs = sum(runs for runs, _ in totals.values())
    jobs = sum(jobs for _, jobs in totals.values())
    return f"{counted(runs, 'run')} of {counted(jobs, 'job')}"
