"""`rota queues`: queued jobs and the workers for them; pause and resume a queue."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, CommandError, print_note
from rota.cli.format import owner
from rota.cli.target import Target, subcommand_follows, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.queues import PauseRow
    from rota.store.read.runs import QueueRow, StateCounts


@click.group(invoke_without_command=True)
@with_target
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def queues(target: Target, as_json: bool) -> None:
    """List the queued jobs of each queue by task, and the workers that can run them."""
    if subcommand_follows(target):
        return
    from rota.store.read import runs

    async def query(app: Rota) -> tuple[list[QueueRow], StateCounts, list[PauseRow], datetime]:
        database = (await app.open()).database
        rows = await database.run(runs.queues())
        [counts] = await database.run(runs.state_counts())
        [now] = await database.run(runs.database_time())
        return rows, counts, await app.queues.paused(), now

    rows, counts, pauses, now = target.run(query)
    paused_since = {each.queue: each.since for each in pauses}
    if as_json:
        output.print_json(
            [{**output.fields(each), "paused": paused_since.get(each.queue)} for each in rows]
        )
        return
    if any(each.queued for each in rows):
        _print_queues(rows)
        click.echo()
    else:
        output.print_text("no queue has queued jobs")
    output.print_text(
        f"{output.format_count(counts.running)} running, {output.format_count(counts.sleeping)} sleeping",
        "dim",
    )
    if counts.quarantined:
        output.print_text(
            f"{output.format_count(counts.quarantined)} in quarantine, not retried until they are "
            "released; see `rota quarantine`",
            "magenta",
        )
    for pause in pauses:
        reason = f", {output.single_line(pause.reason)}" if pause.reason else ""
        operator = f" by {output.single_line(pause.operator)}" if pause.operator else ""
        output.print_text(
            f"queue {pause.queue!r} has been paused for "
            f"{output.format_age(pause.since, now)}{operator}{reason}; "
            f"resume it with `rota queues resume {pause.queue}`",
            "yellow",
        )
    for each in rows:
        if each.queued and not each.workers and each.queue not in paused_since:
            output.print_text(
                f"no worker serves queue {each.queue!r} and knows task "
                f"{each.task!r}: {_format_waiting_jobs(each.queued)} until one is started",
                "yellow",
            )


@queues.command()
@with_target
@click.argument("name")
@click.option(
    "--reason", default="", metavar="WORDS", help="Reason for the pause, shown with the queue."
)
def pause(target: Target, name: str, reason: str) -> None:
    """Pause the queue NAME. Running jobs finish; queued jobs wait."""

    async def pause_queue(app: Rota) -> bool:
        return await app.queues.pause(name, reason, by=owner.current_operator())

    if target.run(pause_queue):
        click.echo(f"queue {name!r} is paused")
    else:
        print_note(f"queue {name!r} was paused already")


@queues.command()
@with_target
@click.argument("name")
def resume(target: Target, name: str) -> None:
    """Resume the queue NAME."""

    async def resume_queue(app: Rota) -> bool:
        return await app.queues.resume(name, by=owner.current_operator())

    if not target.run(resume_queue):
        raise CommandError(f"queue {name!r} is not paused", NOT_FOUND)
    click.echo(f"queue {name!r} goes on")


def _print_queues(rows: list[QueueRow]) -> None:
    quarantined = any(each.quarantined for each in rows)
    grid = output.new_table(
        "queue",
        "task",
        "queued",
        "oldest",
        "workers",
        *(["quarantined"] if quarantined else []),
        right=("queued", "oldest", "workers", "quarantined"),
        free=("queue", "task"),
    )
    for each in rows:
        grid.add_row(
            output.cell(each.queue),
            output.cell(each.task),
            output.cell(output.format_count(each.queued)),
            output.cell(output.format_duration(each.oldest)),
            output.cell(
                each.workers or "none", "yellow" if each.queued and not each.workers else ""
            ),
            *([_quarantined_cell(each.quarantined)] if quarantined else []),
        )
    output.print_renderable(grid)


def _quarantined_cell(quarantined: int) -> Text:
    return output.cell(output.format_count(quarantined) if quarantined else "", "magenta")


def _format_waiting_jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{output.format_count(count)} jobs wait"
