"""`rota runs`, `cancel`, `retry` and `fork`: list and manage runs."""

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
"""Time limit of the search; the rest is searched by the next command."""


@click.command()
@with_target
@run_filter_options
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--before", type=RUN_ID, metavar="RUN", help="Only runs started before this one.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def runs(
    target: Target, run_filter: RunFilter, limit: int, before: int | None, as_json: bool
) -> None:
    """List runs of tasks and flows, latest first."""
    from rota.operations import run_search
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
        click.echo(
            "no run matches" if filtered else "no runs yet; start one with `rota start TASK`"
        )
    else:
        click.echo("no run matches among those searched so far")
    if next_id is not None:
        output.hint(f"older runs: rota runs --before {next_id}")
    if run_filter.states == ("quarantined",):
        output.hint("jobs of flows are listed by `rota quarantine`")


def _print_runs(found: list[RunRow], now: datetime) -> None:
    """Print a table of runs, without columns that are the same for all."""
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
    "--all",
    "select_all",
    is_flag=True,
    help="Every run that matches the filters; without filters, every run.",
)
@run_filter_options
@click.option("--yes", is_flag=True, help="With --all: do not ask for confirmation.")
def cancel(
    target: Target, runs: tuple[int, ...], select_all: bool, run_filter: RunFilter, yes: bool
) -> None:
    """Cancel RUN. If it is running, its worker is asked to stop it.

    A flow's run is cancelled as a whole, with the runs that its jobs have started. A single job of a
    flow can be cancelled, too; its successors then follow their rules. With --all, every matching run
    that has not ended is cancelled; runs that start meanwhile are not.
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
    "--all",
    "select_all",
    is_flag=True,
    help="Every run that matches the filters; without filters, every run.",
)
@run_filter_options
@click.option("--yes", is_flag=True, help="With --all: do not ask for confirmation.")
def retry(
    target: Target, runs: tuple[int, ...], select_all: bool, run_filter: RunFilter, yes: bool
) -> None:
    """Retry RUN after it failed, expired or was cancelled.

    In a flow, failed jobs and their successors run again; succeeded jobs keep their results. With --all,
    every matching run that ended without success is retried.
    """
    if _selects_all(runs, select_all, run_filter, yes):
        apply_to_all(target, "retry", run_filter, yes=yes)
        return

    async def retry_run(app: Rota, run: int) -> None:
        await app.run(run).retry(by=owner.current_operator())
        click.echo(f"run {run} is queued for a retry")

    for_each_run(target, runs, retry_run)


@click.command()
@with_target
@click.argument("run", type=RUN_ID)
@click.option("--from", "task", metavar="TASK", help="In a flow: the first task to run again.")
@click.option("--from-step", "step", metavar="NAME", help="In a task: the first step to run again.")
@click.option(
    "--input",
    "document",
    metavar="JSON",
    help="With --from-step: new arguments, as one JSON object; - reads stdin.",
)
def fork(
    target: Target, run: int, task: str | None, step: str | None, document: str | None
) -> None:
    """Run RUN again from a task or step on, as a new run. Prints its id.

    In a flow, TASK, its successors and all jobs without success run again; the others keep their
    results.

    In a task, the entries before the step NAME are kept and the rest runs again. New arguments are
    validated by the app, so --input needs -a MODULE:APP.
    """
    if (task is None) == (step is None):
        raise click.UsageError(
            "no starting point is given: use --from TASK for a flow, or --from-step NAME for a task"
        )
    if document is not None and step is None:
        raise click.UsageError("--input needs --from-step; a fork of a flow keeps its input")

    input = None if document is None else read_object(document, "--input")

    async def fork_run(app: Rota) -> int:
        if step is None:
            return (await app.fork(run, from_=str(task), by=owner.current_operator())).id
        return (await app.fork(run, from_step=step, input=input, by=owner.current_operator())).id

    click.echo(target.run(fork_run))


def _selects_all(runs: tuple[int, ...], select_all: bool, run_filter: RunFilter, yes: bool) -> bool:
    if select_all == bool(runs):
        raise click.UsageError("no run is given: pass RUN..., or --all with filters, but not both")
    if not select_all and (has_criteria(run_filter) or yes):
        raise click.UsageError("filters and --yes need --all")
    return select_all


async def describe_run(app: Rota, id: int) -> str:
    """Return "run 1", or "job 2 of run 1"."""
    from rota.store.read import runs as read_runs

    found = await (await app.open()).database.fetch_one(read_runs.run(id))
    if found is None or found.run == id:
        return f"run {id}"
    return f"job {id} of run {found.run}"


def for_each_run(
    target: Target, runs: tuple[int, ...], action: Callable[[Rota, int], Awaitable[None]]
) -> None:
    """Apply an action to every run.

    If one fails, the next ones still run, and its exit code is returned.
    """

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
