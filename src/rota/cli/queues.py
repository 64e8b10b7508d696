"""`rota queues`: queued jobs and the workers for them; pause and resume a queue."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, CommandError, print_note
from rota.cli.table import Column, Table, json_option, list_command
from rota.cli.target import Target, subcommand_follows, with_target
from rota.model.text import counted, single_line

if TYPE_CHECKING:
    from rota.operations.queues import QueueList
    from rota.store.read.runs import QueueRow


@click.group(invoke_without_command=True)
@with_target
@json_option
def queues(target: Target, as_json: bool) -> None:
    """List the queued jobs of each queue by task, and the workers that can run them."""
    if subcommand_follows(target):
        return
    from rota.operations.maintenance import overview
    from rota.operations.queues import list_queues

    def show(document: QueueList, now: datetime) -> None:
        if any(each.queued for each in document.queues):
            QUEUES.print(document.queues, now)
            click.echo()
        else:
            output.print_text("no queue has queued jobs")
        counts, _ = target.perform(overview)
        output.print_text(
            f"{output.format_count(counts.running)} running, "
            f"{output.format_count(counts.sleeping)} sleeping",
            "dim",
        )
        if counts.quarantined:
            output.print_text(
                f"{output.format_count(counts.quarantined)} in quarantine, not retried until they are "
                "released; see `rota quarantine`",
                "magenta",
            )
        for pause in document.paused:
            reason = f", {single_line(pause.reason)}" if pause.reason else ""
            operator = f" by {single_line(pause.operator)}" if pause.operator else ""
            output.print_text(
                f"queue {pause.queue!r} has been paused for "
                f"{output.format_age(pause.since, now)}{operator}{reason}; "
                f"resume it with `rota queues resume {pause.queue}`",
                "yellow",
            )
        paused = {each.queue for each in document.paused}
        for each in document.queues:
            if each.queued and not each.workers and each.queue not in paused:
                output.print_text(
                    f"no worker serves queue {each.queue!r} and knows task "
                    f"{each.task!r}: {counted(each.queued, 'job waits', 'jobs wait')} until one is started",
                    "yellow",
                )

    list_command(target, list_queues, show, as_json=as_json)


@queues.command()
@with_target
@click.argument("name")
@click.option(
    "--reason", default="", metavar="WORDS", help="Reason for the pause, shown with the queue."
)
def pause(target: Target, name: str, reason: str) -> None:
    """Pause the queue NAME. Running jobs finish; queued jobs wait."""
    from rota.operations.queues import PauseQueueRequest, pause_queue

    state, _ = target.perform(pause_queue, queue=name, body=PauseQueueRequest(reason))
    if state.changed:
        click.echo(f"queue {name!r} is paused")
    else:
        print_note(f"queue {name!r} was paused already")


@queues.command()
@with_target
@click.argument("name")
def resume(target: Target, name: str) -> None:
    """Resume the queue NAME."""
    from rota.operations.queues import resume_queue

    state, _ = target.perform(resume_queue, queue=name)
    if not state.changed:
        raise CommandError(f"queue {name!r} is not paused", NOT_FOUND)
    click.echo(f"queue {name!r} goes on")


QUEUES: Table[QueueRow] = Table(
    Column("queue", lambda row, now: row.queue, shrinks=True),
    Column("task", lambda row, now: row.task, shrinks=True),
    Column("queued", lambda row, now: output.format_count(row.queued), right=True),
    Column("oldest", lambda row, now: output.format_duration(row.oldest), right=True),
    Column(
        "workers",
        lambda row, now: row.workers or "none",
        lambda row: "yellow" if row.queued and not row.workers else "",
        right=True,
    ),
    Column(
        "quarantined",
        lambda row, now: output.format_count(row.quarantined) if row.quarantined else "",
        "magenta",
        right=True,
    ),
)
