"""`rota quarantine` and `rota release`: jobs that are not retried automatically.

Too many workers died while running them, or their code has changed since they began.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, CommandError
from rota.cli.runs import RUN_ID, for_each_run
from rota.cli.table import Column, Table, json_option, limit_option, list_command
from rota.cli.target import Target, with_target
from rota.model.text import counted, single_line

if TYPE_CHECKING:
    from rota.operations.declare import OperationContext
    from rota.operations.queues import QuarantineList
    from rota.store.read.runs import QuarantineRow

_MISMATCH_MESSAGE = re.compile(
    r"job \d+ reached (.+), but its journal has (.+) here: the code has changed since the run began"
)
"""Worker's message about changed code, which is too long for a table."""


class ReplayDifference(NamedTuple):
    """Changed code of a job: the entry it reaches now, and the stored entry at that position."""

    current: str
    stored: str

    def __str__(self) -> str:
        return f"its code has changed: it reached {self.current}, but its journal has {self.stored}"


def parse_replay_difference(error: bytes | None) -> ReplayDifference | None:
    from rota.model.codec import decode_error

    found = decode_error(error)
    return replay_difference(found.type, found.message)


def replay_difference(type: str, message: str) -> ReplayDifference | None:
    matched = _MISMATCH_MESSAGE.match(message) if type == "rota.errors.ReplayMismatch" else None
    if matched is None:
        return None
    return ReplayDifference(single_line(matched[1]), single_line(matched[2]))


@click.command()
@with_target
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@limit_option(20)
@click.option("--after", type=RUN_ID, metavar="JOB", help="Only jobs after this one.")
@json_option
def quarantine(
    target: Target, limit: int, after: int | None, as_json: bool, **criteria: str | None
) -> None:
    """List the jobs in quarantine: too many workers died running them, or their code has changed.

    They are not retried until an operator acts: `rota release` retries a job, `rota cancel` ends it. The
    number of crashes that a task may have is set by @app.task(max_crashes=3). If the code has changed,
    `rota show` shows the entry it reaches now and the stored one.
    """
    from rota.operations.documents import encode_cursor
    from rota.operations.queues import list_quarantine

    def show(document: QuarantineList, now: datetime) -> None:
        if not document.jobs:
            filtered = after or any(criteria.values())
            click.echo("no job in quarantine matches" if filtered else "no job is in quarantine")
            return
        _print_jobs(document.jobs, now)
        if document.next is not None:
            output.hint(f"more: rota quarantine --after {document.jobs[-1].job}")
        output.hint(_next_steps(document.jobs))

    cursor = None if after is None else encode_cursor(str(after))
    query = {**criteria, "limit": limit, "cursor": cursor}
    list_command(target, list_quarantine, show, as_json=as_json, query=query)


def _next_steps(found: list[QuarantineRow]) -> str:
    words = "retry with `rota release JOB` or end with `rota cancel JOB`; `rota show JOB` shows the reason"
    if any(_difference(each) for each in found):
        words += (
            ". If the code of a job has changed, deploy code that fits before you release the job"
        )
    return words


def _difference(job: QuarantineRow) -> ReplayDifference | None:
    if job.error is None:
        return None
    error = msgspec.json.decode(job.error, type=output.TaskError)
    return replay_difference(error.type or "", str(error.message))


def _print_jobs(found: list[QuarantineRow], now: datetime) -> None:
    in_runs = any(each.run != each.job for each in found)
    Table["QuarantineRow"](
        Column("job", lambda row, now: row.job, right=True),
        Column(
            "run",
            lambda row, now: row.run if in_runs else "",
            lambda row: "" if row.run != row.job else "dim",
            right=True,
        ),
        Column("task", lambda row, now: row.task, shrinks=True),
        Column("queue", lambda row, now: row.queue, shrinks=True),
        Column("attempt", lambda row, now: row.attempt, right=True),
        Column(
            "crashes",
            lambda row, now: row.crashes,
            lambda row: "" if row.crashes else "dim",
            right=True,
        ),
        Column("since", lambda row, now: output.format_age(row.since, now), right=True),
        Column(
            "reason",
            lambda row, now: _difference(row) or output.error_summary(row.error),
            shrinks=True,
        ),
    ).print(found, now)


@click.command()
@with_target
@click.argument("ids", metavar="ID...", type=RUN_ID, nargs=-1)
@click.option("--all", "select_all", is_flag=True, help="Every job in quarantine.")
@click.option("--task", metavar="NAME", help="With --all: only jobs of this task.")
@click.option("--queue", metavar="NAME", help="With --all: only jobs of this queue.")
def release(
    target: Target, ids: tuple[int, ...], select_all: bool, task: str | None, queue: str | None
) -> None:
    """Release a job, or every job of a run, from quarantine: it is retried.

    First fix the cause of the crashes, or more workers will die. If the code has changed, first deploy
    code that fits, or the job returns to quarantine at once.
    """
    if select_all == bool(ids):
        raise click.UsageError("no job is given: run `rota release ID...` or `rota release --all`")
    if (task or queue) and not select_all:
        raise click.UsageError("--task and --queue need --all")
    if not select_all:
        for_each_run(target, ids, _release)
        return
    from rota.operations.queues import ReleaseRunsRequest, release_runs

    released, cursor, is_first = 0, None, True
    while is_first or cursor is not None:
        batch, _ = target.perform(release_runs, body=ReleaseRunsRequest(task, queue, cursor))
        released, cursor, is_first = released + batch.released, batch.next, False
    if released:
        click.echo(f"{counted(released, 'job is', 'jobs are')} queued for a retry")
    else:
        click.echo("no job in quarantine matches" if task or queue else "no job is in quarantine")


async def _release(context: OperationContext, id: int) -> None:
    from rota.operations.runs import describe_run, release_run

    released = (await release_run.call(context, run=id)).released
    name = await describe_run(context, id)
    if not released:
        state = await context.app.run(id).status()
        raise CommandError(f"{name} is not in quarantine: it is {state}", NOT_FOUND)
    if released == 1:
        click.echo(f"{name} is queued for a retry")
    else:
        click.echo(f"{released} jobs of run {id} are queued for a retry")
