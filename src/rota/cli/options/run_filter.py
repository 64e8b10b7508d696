"""Options that select runs, and actions on all selected runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import NOT_FOUND, CommandError
from rota.cli.format import owner
from rota.cli.schedules import TimeParameter

if TYPE_CHECKING:
    from rota import Rota
    from rota.cli.target import Target
    from rota.operations.bulk_actions import BulkAction, BulkResult, RunCount
    from rota.store.database import Database
    from rota.store.read.run_list import RunFilter

T = TypeVar("T")

RUN_STATES = [state for state in output.STATE_STYLES if state not in ("waiting", "skipped")]
"""States of a run. Only jobs can be waiting or skipped."""

DONE_TEXTS = {"cancel": "cancelled", "retry": "queued for a retry"}


def run_filter_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add options that select runs, passed to the command as `run_filter`."""

    @wraps(command)
    def wrapped(
        *args: Any,
        name: str | None,
        queue: str | None,
        state: str | None,
        key: str | None,
        since: datetime | None,
        until: datetime | None,
        find: str | None,
        **arguments: Any,
    ) -> T:
        from rota.store.read.run_list import RunFilter

        run_filter = RunFilter(
            name=name,
            queue=queue,
            states=None if state is None else (state,),
            key=key,
            since=_as_utc(since),
            until=_as_utc(until),
            text=find or None,
            search_values=True,
        )
        return command(*args, run_filter=run_filter, **arguments)

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
                "--since", type=TimeParameter(), help="Created at this time or later; UTC."
            ),
            click.option("--until", type=TimeParameter(), help="Created before this time; UTC."),
            click.option("--find", metavar="TEXT", help="Text in the name, key, input or error."),
        )
    ):
        wrapped = option(wrapped)
    return wrapped


def has_criteria(run_filter: RunFilter) -> bool:
    """True if a criterion was given."""
    criteria = (
        *(run_filter.name, run_filter.queue, run_filter.states, run_filter.key),
        run_filter.text,
    )
    return any(each is not None for each in (*criteria, run_filter.since, run_filter.until))


def pipeline_fetch(database: Database) -> Callable[..., Any]:
    """Return a function that runs several queries in one transaction."""

    async def fetch(*queries: Any) -> list[Any]:
        [rows] = await database.pipeline([queries])
        return rows

    return fetch


def apply_to_all(target: Target, action: BulkAction, run_filter: RunFilter, *, yes: bool) -> None:
    """Cancel or retry all matching runs, after confirmation of their number."""
    from rota.operations import bulk_actions

    async def count_runs(app: Rota) -> RunCount:
        return await bulk_actions.count_runs(
            app, pipeline_fetch((await app.open()).database), action, run_filter
        )

    count = target.run(count_runs)
    if count.count == 0 and count.is_exact:
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
        fetch = pipeline_fetch((await app.open()).database)
        done = skipped = 0
        before: int | None = None
        with output.console().status(f"0 of {_format_run_count(count)}") as status:
            while True:
                result: BulkResult = await bulk_actions.apply_batch(
                    app,
                    fetch,
                    action,
                    run_filter,
                    last_id=count.last_id,
                    before=before,
                    by=owner.current_operator(),
                )
                done, skipped, before = (
                    done + result.done,
                    skipped + result.skipped,
                    result.next_id,
                )
                status.update(f"{output.format_count(done)} of {_format_run_count(count)}")
                if before is None:
                    return done, skipped

    done, skipped = target.run(apply)
    click.echo(f"{_format_runs(done)} {'is' if done == 1 else 'are'} {DONE_TEXTS[action]}")
    if skipped:
        output.hint(f"{_format_runs(skipped)} had changed state by then and were left alone")


def _format_run_count(count: RunCount) -> str:
    return ("" if count.is_exact else "at least ") + _format_runs(count.count)


def _format_runs(count: int) -> str:
    return f"{output.format_count(count)} {'run' if count == 1 else 'runs'}"


def _as_utc(at: datetime | None) -> datetime | None:
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
