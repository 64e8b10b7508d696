"""Options that select runs, and actions on all selected runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, CommandError
from rota.cli.schedules import TimeParameter
from rota.cli.target import Target, operator_context
from rota.model.text import counted

if TYPE_CHECKING:
    from rota import Rota
    from rota.operations.bulk import RunCountDocument
    from rota.operations.run_search import RunFilterQuery

T = TypeVar("T")

RUN_STATES = [state for state in output.STATE_STYLES if state not in ("waiting", "skipped")]
"""States of a run. Only jobs can be waiting or skipped."""

DONE_TEXTS = {"cancel": "cancelled", "retry": "queued for a retry"}


def run_filter_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add options that select runs, passed to the command as `run_filter`."""

    @wraps(command)
    def wrapped(*args: Any, **arguments: Any) -> T:
        from rota.operations.run_search import RunFilterQuery

        criteria = {name: arguments.pop(name) for name in RunFilterQuery.__struct_fields__}
        return command(*args, run_filter=RunFilterQuery(**criteria), **arguments)

    for option in reversed(
        (
            click.option(
                "--task", "--flow", "name", metavar="NAME", help="Only runs of this task or flow."
            ),
            click.option(
                "--queue", metavar="NAME", help="Only runs in this queue; flows have no queue."
            ),
            click.option("--state", type=click.Choice(RUN_STATES), help="Only runs in this state."),
            click.option(
                "--key",
                metavar="KEY",
                help="Only the last run with this key, of each task and flow.",
            ),
            click.option(
                "--since",
                type=TimeParameter(),
                callback=_as_utc,
                help="Created at this time or later; UTC.",
            ),
            click.option(
                "--until",
                type=TimeParameter(),
                callback=_as_utc,
                help="Created before this time; UTC.",
            ),
            click.option(
                "--find",
                metavar="TEXT",
                callback=lambda context, option, text: text or None,
                help="Text in the name, key, input or error.",
            ),
        )
    ):
        wrapped = option(wrapped)
    return wrapped


def has_criteria(run_filter: RunFilterQuery) -> bool:
    """True if a criterion was given."""
    return any(each is not None for each in msgspec.structs.astuple(run_filter))


def apply_to_all(
    target: Target, action: Literal["cancel", "retry"], run_filter: RunFilterQuery, *, yes: bool
) -> None:
    """Cancel or retry all matching runs, after confirmation of their number."""
    from rota.operations import bulk

    criteria = msgspec.structs.asdict(run_filter)
    count, _ = target.perform(bulk.count_runs, query=bulk.RunCountQuery(**criteria, action=action))
    if count.count == 0 and count.exact:
        click.echo(
            "no run matches that could be " + ("retried" if action == "retry" else "cancelled")
        )
        return
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                f"{_format_run_count(count)} would be affected; repeat the command with --yes",
                NOT_FOUND,
            )
        click.confirm(f"{action} {_format_run_count(count)}?", abort=True)

    async def apply(app: Rota) -> tuple[int, int]:
        operation = bulk.cancel_runs if action == "cancel" else bulk.retry_runs
        context = operator_context(app)
        done = skipped = 0
        cursor: str | None = None
        with output.console().status(f"0 of {_format_run_count(count)}") as status:
            while True:
                body = bulk.BulkRequest(**criteria, upto=str(count.upto), cursor=cursor)
                batch = await operation.call(context, body=body)
                done, skipped, cursor = done + batch.done, skipped + batch.skipped, batch.next
                status.update(f"{output.format_count(done)} of {_format_run_count(count)}")
                if cursor is None:
                    return done, skipped

    done, skipped = target.run(apply)
    click.echo(f"{counted(done, 'run is', 'runs are')} {DONE_TEXTS[action]}")
    if skipped:
        output.hint(f"{counted(skipped, 'run')} had changed state by then and were left alone")


def _format_run_count(count: RunCountDocument) -> str:
    return ("" if count.exact else "at least ") + counted(count.count, "run")


def _as_utc(
    context: click.Context, option: click.Parameter, at: datetime | None
) -> datetime | None:
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
