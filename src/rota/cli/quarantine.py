"""`rota quarantine` and `rota release`: jobs that are not retried automatically.

Too many workers died while running them, or their code has changed since they began.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, CommandError
from rota.cli.format import owner
from rota.cli.runs import RUN_ID, describe_run, for_each_run
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.read.runs import QuarantineRow

BATCH_JOBS = 1000

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
    matched = (
        _MISMATCH_MESSAGE.match(found.message)
        if found.type == "rota.errors.ReplayMismatch"
        else None
    )
    return (
        None
        if matched is None
        else ReplayDifference(output.single_line(matched[1]), output.single_line(matched[2]))
    )


@click.command()
@with_target
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--after", type=RUN_ID, metavar="JOB", help="Only jobs after this one.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def quarantine(
    target: Target,
    task: str | None,
    queue: str | None,
    limit: int,
    after: int | None,
    as_json: bool,
) -> None:
    """List the jobs in quarantine: too many workers died running them, or their code has changed.

    They are not retried until an operator acts: `rota release` retries a job, `rota cancel` ends it. The
    number of crashes that a task may have is set by @app.task(max_crashes=3). If the code has changed,
    `rota show` shows the entry it reaches now and the stored one.
    """
    from rota.store.read import runs

    async def query(app: Rota) -> tuple[list[QuarantineRow], datetime]:
        database = (await app.open()).database
        [now] = await database.run(runs.database_time())
        return await database.run(runs.quarantine(task, queue, after or 0, limit)), now

    found, now = target.run(query)
    if as_json:
        output.print_json([output.fields(each, stored=("error",)) for each in found])
    elif not found:
        filtered = any((task, queue, after))
        click.echo("no job in quarantine matches" if filtered else "no job is in quarantine")
    else:
        _print_jobs(found, now)
        if len(found) == limit:
            output.hint(f"more: rota quarantine --after {found[-1].job}")
        output.hint(_next_steps(found))


def _next_steps(found: list[QuarantineRow]) -> str:
    words = "retry with `rota release JOB` or end with `rota cancel JOB`; `rota show JOB` shows the reason"
    if any(parse_replay_difference(each.error) for each in found):
        words += (
            ". If the code of a job has changed, deploy code that fits before you release the job"
        )
    return words


def _print_jobs(found: list[QuarantineRow], now: datetime) -> None:
    in_runs = any(each.run != each.job for each in found)
    grid = output.new_table(
        "job",
        *(["run"] if in_runs else []),
        "task",
        "queue",
        "attempt",
        "crashes",
        "since",
        "reason",
        right=("job", "run", "attempt", "crashes", "since"),
        free=("task", "queue", "reason"),
    )
    for each in found:
        grid.add_row(
            output.cell(each.job),
            *([output.cell(each.run, "" if each.run != each.job else "dim")] if in_runs else []),
            output.cell(each.task),
            output.cell(each.queue),
            output.cell(each.attempt),
            output.cell(each.crashes, "" if each.crashes else "dim"),
            output.cell(output.format_age(each.since, now)),
            output.cell(parse_replay_difference(each.error) or output.error_summary(each.error)),
        )
    output.print_renderable(grid)


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

    async def release_jobs(app: Rota) -> int:
        from rota.store.read import runs

        database = (await app.open()).database
        released = after = 0
        while page := await database.run(runs.quarantine(task, queue, after, BATCH_JOBS)):
            for each in page:
                released += await app.run(each.job).release(by=owner.current_operator())
            after = page[-1].job
        return released

    released = target.run(release_jobs)
    if released:
        click.echo(f"{_format_jobs_are(released)} queued for a retry")
    else:
        click.echo("no job in quarantine matches" if task or queue else "no job is in quarantine")


async def _release(app: Rota, id: int) -> None:
    run = app.run(id)
    released = await run.release(by=owner.current_operator())
    if not released:
        state = await run.status()
        raise CommandError(
            f"{await describe_run(app, id)} is not in quarantine: it is {state}", NOT_FOUND
        )
    if released == 1:
        click.echo(f"{await describe_run(app, id)} is queued for a retry")
    else:
        click.echo(f"{released} jobs of run {id} are queued for a retry")


def _format_jobs_are(count: int) -> str:
    return "1 job is" if count == 1 else f"{output.format_count(count)} jobs are"
