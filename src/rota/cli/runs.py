"""`rota runs`, `cancel`, `retry` and `fork`: list and manage runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import OK, CommandError, exit_code_of, exit_with, print_error
from rota.cli.format.wait import wait_summary
from rota.cli.options.json_input import read_object
from rota.cli.options.run_filter import (
    apply_to_all,
    has_criteria,
    run_filter_options,
)
from rota.cli.table import Column, Table, json_option, limit_option, list_command
from rota.cli.target import Target, operator_context, with_target
from rota.errors import RotaError
from rota.model.text import single_line

if TYPE_CHECKING:
    from rota import Rota
    from rota.operations.declare import OperationContext
    from rota.operations.run_documents import RunPage
    from rota.operations.run_search import RunFilterQuery
    from rota.store.read.runs import RunRow


class RunIdParameter(click.IntRange):
    name = "run's id"


RUN_ID = RunIdParameter(1, 2**63 - 1)


@click.command()
@with_target
@run_filter_options
@limit_option(20)
@click.option("--before", type=RUN_ID, metavar="RUN", help="Only runs started before this one.")
@json_option
def runs(
    target: Target, run_filter: RunFilterQuery, limit: int, before: int | None, as_json: bool
) -> None:
    """List runs of tasks and flows, latest first."""
    from rota.operations.documents import decode_cursor, encode_cursor
    from rota.operations.runs import list_runs

    def show(document: RunPage, now: datetime) -> None:
        if document.runs:
            _print_runs(document.runs, now)
        elif document.next is None:
            filtered = has_criteria(run_filter) or before
            click.echo(
                "no run matches" if filtered else "no runs yet; start one with `rota start TASK`"
            )
        else:
            click.echo("no run matches among those searched so far")
        if document.next is not None:
            output.hint(f"older runs: rota runs --before {decode_cursor(document.next)}")
        if run_filter.state == "quarantined":
            output.hint("jobs of flows are listed by `rota quarantine`")

    cursor = None if before is None else encode_cursor(str(before))
    query = {**msgspec.structs.asdict(run_filter), "limit": limit, "cursor": cursor}
    list_command(target, list_runs, show, as_json=as_json, query=query)


def _print_runs(found: list[RunRow], now: datetime) -> None:
    """Print a table of runs, without columns that are the same for all."""
    has_flows = any(each.is_flow for each in found)
    Table["RunRow"](
        Column("run", lambda row, now: row.run, right=True),
        Column("name" if has_flows else "task", lambda row, now: row.name, shrinks=True),
        Column("kind", lambda row, now: (has_flows and _kind(row)) or "", "dim"),
        Column(
            "queue",
            lambda row, now: "-" if row.queue is None else row.queue,
            lambda row: "dim" if row.queue is None else "",
            shrinks=True,
        ),
        Column(
            "state", lambda row, now: row.state, lambda row: output.STATE_STYLES.get(row.state, "")
        ),
        Column(
            "attempt",
            lambda row, now: row.attempt,
            lambda row: "" if row.attempt > 1 else "dim",
            right=True,
        ),
        Column("age", lambda row, now: output.format_age(row.created, now), right=True),
        Column("key", lambda row, now: row.key, shrinks=True),
        Column("detail", _detail, shrinks=True),
    ).print(found, now)


def _kind(row: RunRow) -> str:
    return "flow" if row.is_flow else "task"


def _detail(row: RunRow, now: datetime) -> str:
    words = wait_summary(row, now)
    return f"{words}: {single_line(row.note)}" if words and row.note else words


def _selection(command: Callable[..., None]) -> Callable[..., None]:
    """Add RUN... and --all with its filters."""
    yes = click.option("--yes", is_flag=True, help="With --all: do not ask for confirmation.")
    select_all = click.option(
        "--all",
        "select_all",
        is_flag=True,
        help="Every run that matches the filters; without filters, every run.",
    )
    run_ids = click.argument("runs", metavar="[RUN...]", type=RUN_ID, nargs=-1)
    return run_ids(select_all(run_filter_options(yes(command))))


@click.command()
@with_target
@_selection
def cancel(
    target: Target, runs: tuple[int, ...], select_all: bool, run_filter: RunFilterQuery, yes: bool
) -> None:
    """Cancel RUN. If it is running, its worker is asked to stop it.

    A flow's run is cancelled as a whole, with the runs that its jobs have started. A single job of a
    flow can be cancelled, too; its successors then follow their rules. With --all, every matching run
    that has not ended is cancelled; runs that start meanwhile are not.
    """
    if _selects_all(runs, select_all, run_filter, yes):
        apply_to_all(target, "cancel", run_filter, yes=yes)
        return

    async def cancel_one(context: OperationContext, run: int) -> None:
        from rota.operations.runs import cancel_run, describe_run

        status = (await cancel_run.call(context, run=run)).status
        name = await describe_run(context, run)
        if status == "cancelled":
            click.echo(f"{name} is cancelled")
        else:
            click.echo(f"{name} is running; its worker has been asked to stop it")

    for_each_run(target, runs, cancel_one)


@click.command()
@with_target
@_selection
def retry(
    target: Target, runs: tuple[int, ...], select_all: bool, run_filter: RunFilterQuery, yes: bool
) -> None:
    """Retry RUN after it failed, expired or was cancelled.

    In a flow, failed jobs and their successors run again; succeeded jobs keep their results. With --all,
    every matching run that ended without success is retried.
    """
    if _selects_all(runs, select_all, run_filter, yes):
        apply_to_all(target, "retry", run_filter, yes=yes)
        return

    async def retry_one(context: OperationContext, run: int) -> None:
        from rota.operations.runs import retry_run

        await retry_run.call(context, run=run)
        click.echo(f"run {run} is queued for a retry")

    for_each_run(target, runs, retry_one)


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

    from rota.operations.run_documents import ForkRunRequest
    from rota.operations.runs import fork_run

    input = None if document is None else read_object(document, "--input")
    started, _ = target.perform(fork_run, run=run, body=ForkRunRequest(task, step, input))
    click.echo(started.run)


def _selects_all(
    runs: tuple[int, ...], select_all: bool, run_filter: RunFilterQuery, yes: bool
) -> bool:
    if select_all == bool(runs):
        raise click.UsageError("no run is given: pass RUN..., or --all with filters, but not both")
    if not select_all and (has_criteria(run_filter) or yes):
        raise click.UsageError("filters and --yes need --all")
    return select_all


def for_each_run(
    target: Target,
    runs: tuple[int, ...],
    action: Callable[[OperationContext, int], Awaitable[None]],
) -> None:
    """Apply an action to every run.

    If one fails, the next ones still run, and its exit code is returned.
    """

    async def apply(app: Rota) -> int:
        code, context = OK, operator_context(app)
        for run in runs:
            try:
                await action(context, run)
            except RotaError as error:
                print_error(str(error))
                code = exit_code_of(error)
            except CommandError as error:
                print_error(error.message)
                code = error.exit_code
        return code

    exit_with(target.run(apply))
