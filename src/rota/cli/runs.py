"""`rota runs`, `cancel`, `retry` and `fork`: which runs there are, and what to do about one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, OK, CommandError, exit_code_of, exit_with, print_error
from rota.cli.format import owner
from rota.cli.format.wait import wait_summary
from rota.cli.options.json_input import read_object
from rota.cli.options.run_filter import (
    apply_to_all,
    has_criteria,
    pipeline_fetch,
    run_filter_options,
)
from rota.cli.target import Target, with_target
from rota.errors import RotaError

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.read.run_list import RunFilter
    from rota.store.read.runs import RunRow


class RunIdParameter(click.IntRange):
    name = "run's id"


RUN_ID = RunIdParameter(1, 2**63 - 1)

SEARCH_TIMEOUT_SECONDS = 5.0
"""Seconds; what was not looked through by then is for the next time."""


@click.command()
@with_target
@run_filter_options
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--before", type=RUN_ID, metavar="RUN", help="Only those started before this one.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def runs(
    target: Target, run_filter: RunFilter, limit: int, before: int | None, as_json: bool
) -> None:
    """List runs of tasks and flows, the latest first."""
    from rota.app import run_search
    from rota.store.read import runs as read_runs

    async def query(app: Rota) -> tuple[list[RunRow], int | None, datetime]:
        database = (await app.open()).database
        fetch = pipeline_fetch(database)
        resolved = run_search.with_kind(app, run_filter)
        found = await run_search.find_runs(
            fetch,
            resolved,
            limit,
            before=before or read_runs.MAX_ID,
            seconds=SEARCH_TIMEOUT_SECONDS,
        )
        [now] = await database.run(read_runs.database_time())
        return await run_search.load_rows(fetch, resolved, found.positions), found.next_id, now

    found, next_id, now = target.run(query)
    if as_json:
        output.print_json([output.fields(each) for each in found])
        return
    if found:
        _print_runs(found, now)
    elif next_id is None:
        filtered = has_criteria(run_filter) or before
        click.echo("no run fits" if filtered else "no runs yet; start one with `rota start TASK`")
    else:
        click.echo("no run fits, as far as was looked")
    if next_id is not None:
        output.hint(f"older ones: rota runs --before {next_id}")
    if run_filter.states == ("quarantined",):
        output.hint("jobs of flows are listed by `rota quarantine`")


def _print_runs(found: list[RunRow], now: datetime) -> None:
    """Columns that would say the same of every run are left out."""
    has_flows = any(each.is_flow for each in found)
    has_keys = any(each.key is not None for each in found)
    details = {each.run: _detail(each, now) for each in found}
    has_details = any(details.values())
    grid = output.new_table(
        "run",
        "name" if has_flows else "task",
        *(["kind"] if has_flows else []),
        "queue",
        "state",
        "attempt",
        "age",
        *(["key"] if has_keys else []),
        *(["detail"] if has_details else []),
        right=("run", "attempt", "age"),
        free=("name", "task", "queue", "key", "detail"),
    )
    for each in found:
        grid.add_row(
            output.cell(each.run),
            output.cell(each.name),
            *([output.cell("flow" if each.is_flow else "task", "dim")] if has_flows else []),
            output.cell("-", "dim") if each.queue is None else output.cell(each.queue),
            output.state_cell(each.state),
            output.cell(each.attempt, "" if each.attempt > 1 else "dim"),
            output.cell(output.format_age(each.created, now)),
            *([output.cell(each.key)] if has_keys else []),
            *([output.cell(details[each.run])] if has_details else []),
        )
    output.print_renderable(grid)


def _detail(row: RunRow, now: datetime) -> str:
    words = wait_summary(row, now)
    return f"{words}: {output.single_line(row.note)}" if words and row.note else words


@click.command()
@with_target
@click.argument("runs", metavar="[RUN...]", type=RUN_ID, nargs=-1)
@click.option(
    "--all", "select_all", is_flag=True, help="All that match; nothing said, all there are."
)
@run_filter_options
@click.option("--yes", is_flag=True, help="With --all: do not ask whether so many are meant.")
def cancel(
    target: Target, runs: tuple[int, ...], select_all: bool, run_filter: RunFilter, yes: bool
) -> None:
    """Cancel RUN: make it not happen, or ask its worker to stop it.

    A flow's run goes as a whole, with the runs its jobs have started. A job of a flow goes alone, and those
    that wait for it go by their rules. With --all, whatever matches and is not over; runs that start
    meanwhile are not touched.
    """
    if _selects_all(runs, select_all, run_filter, yes):
        apply_to_all(target, "cancel", run_filter, yes=yes)
        return

    async def cancel_run(app: Rota, run: int) -> None:
        name = await describe_run(app, run)
        answer = await app.run(run).cancel(by=owner.current_operator())
        match answer:
            case "cancelled":
                click.echo(f"{name} is cancelled")
            case "requested":
                click.echo(f"{name} is running; its worker has been asked to stop it")
            case "skipped":
                raise CommandError(f"{name} was skipped already", NOT_FOUND)
            case _:
                raise CommandError(f"{name} has {answer} already", NOT_FOUND)

    for_each_run(target, runs, cancel_run)


@click.command()
@with_target
@click.argument("runs", metavar="[RUN...]", type=RUN_ID, nargs=-1)
@click.option(
    "--all", "select_all", is_flag=True, help="All that match; nothing said, all there are."
)
@run_filter_options
@click.option("--yes", is_flag=True, help="With --all: do not ask whether so many are meant.")
def retry(
    target: Target, runs: tuple[int, ...], select_all: bool, run_filter: RunFilter, yes: bool
) -> None:
    """Try RUN once more, although it failed, expired or was cancelled.

    Of a flow, what failed and all that waits for it runs again; what succeeded keeps its results. With
    --all, whatever matches and ended badly.
    """
    if _selects_all(runs, select_all, run_filter, yes):
        apply_to_all(target, "retry", run_filter, yes=yes)
        return

    async def retry_run(app: Rota, run: int) -> None:
        await app.run(run).retry(by=owner.current_operator())
        click.echo(f"run {run} is ready to be tried again")

    for_each_run(target, runs, retry_run)


@click.command()
@with_target
@click.argument("run", type=RUN_ID)
@click.option("--from", "task", metavar="TASK", help="Of a flow: the first that runs anew.")
@click.option("--from-step", "step", metavar="NAME", help="Of a task: the first step done anew.")
@click.option(
    "--input",
    "document",
    metavar="JSON",
    help="With --from-step: arguments instead of its own, as one JSON object; - is stdin.",
)
def fork(
    target: Target, run: int, task: str | None, step: str | None, document: str | None
) -> None:
    """Run RUN once more from somewhere on, as a new run. Prints its id.

    Of a flow, TASK and all that waits for it run anew, and so does what has not succeeded; the rest keeps
    its results.

    Of a task, what its code came to before the step NAME is kept, and the rest is done anew. Other
    arguments are checked by the app, so they need -a MODULE:APP.
    """
    if (task is None) == (step is None):
        raise click.UsageError(
            "say where it begins: --from TASK of a flow, or --from-step NAME of a task"
        )
    if document is not None and step is None:
        raise click.UsageError("--input goes with --from-step; a flow is forked with what it had")

    input = None if document is None else read_object(document, "--input")

    async def fork_run(app: Rota) -> int:
        if step is None:
            return (await app.fork(run, from_=str(task), by=owner.current_operator())).id
        return (await app.fork(run, from_step=step, input=input, by=owner.current_operator())).id

    click.echo(target.run(fork_run))


def _selects_all(runs: tuple[int, ...], select_all: bool, run_filter: RunFilter, yes: bool) -> bool:
    if select_all == bool(runs):
        raise click.UsageError("say which: RUN..., or --all and what they are like")
    if not select_all and (has_criteria(run_filter) or yes):
        raise click.UsageError("what they are like goes with --all; say that, too")
    return select_all


async def describe_run(app: Rota, id: int) -> str:
    """A run, or a job of one."""
    from rota.store.read import runs as read_runs

    found = await (await app.open()).database.fetch_one(read_runs.run(id))
    if found is None or found.run == id:
        return f"run {id}"
    return f"job {id} of run {found.run}"


def for_each_run(
    target: Target, runs: tuple[int, ...], action: Callable[[Rota, int], Awaitable[None]]
) -> None:
    """Do it to every run; one that cannot does not spare the others, and decides the exit code."""

    async def apply(app: Rota) -> int:
        code = OK
        for run in runs:
            try:
                await action(app, run)
            except RotaError as error:
                print_error(str(error))
                code = exit_code_of(error)
            except CommandError as error:
                print_error(error.message)
                code = error.exit_code
        return code

    exit_with(target.run(apply))
