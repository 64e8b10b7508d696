"""`rota schedules`: list, pause, resume, trigger, backfill and delete schedules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import (
    FAILED,
    NOT_FOUND,
    USAGE_ERROR,
    CommandError,
    exit_with,
    print_error,
    print_note,
)
from rota.cli.format import owner
from rota.cli.format.schedule import (
    format_target,
    format_timetable,
    print_schedule,
    print_schedules,
)
from rota.cli.table import json_option, limit_option
from rota.cli.target import Target, operator_context, subcommand_follows, with_target
from rota.errors import ArgumentError
from rota.model.text import counted

if TYPE_CHECKING:
    from rota import Rota
    from rota.model.schedule_view import Schedule
    from rota.operations.declare import Operation

T = TypeVar("T")

SCHEDULE_STATES = ("active", "paused", "disabled", "ended")


class TimeParameter(click.ParamType[datetime]):
    """Time with or without a zone; without one, the schedule's zone applies."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time; write 2026-03-01, '2026-03-01 07:30' or 2026-03-01T07:30+01:00",
                param,
                ctx,
            )


@click.group(invoke_without_command=True)
@with_target
@click.option("--tenant", metavar="NAME", help="Only schedules of this tenant.")
@click.option("--state", type=click.Choice(SCHEDULE_STATES), help="Only schedules in this state.")
@limit_option(100)
@click.option("--after", metavar="NAME", help="Only schedules after this one.")
@json_option
def schedules(
    target: Target, limit: int, after: str | None, as_json: bool, **criteria: Any
) -> None:
    """List schedules: timetable, target, state and last tick.

    A schedule in state unknown has a task, flow or action that no registered worker knows. It is kept
    and starts nothing.
    """
    if subcommand_follows(target):
        return
    from rota.operations.documents import encode_cursor
    from rota.operations.schedules import ScheduleListQuery, list_schedules

    cursor = None if after is None else encode_cursor(after)
    query = ScheduleListQuery(**criteria, limit=limit, cursor=cursor)
    page, has_workers, now = _perform(target, list_schedules, query=query)
    found = page.schedules
    if as_json:
        output.print_json(page)
        return
    if found:
        print_schedules(found, has_workers, now)
        if len(found) == limit:
            output.hint(f"more: rota schedules --after {found[-1].name!r}")
    elif after or any(criteria.values()):
        click.echo("no schedule matches")
    else:
        click.echo(
            'no schedule yet; `@app.schedule("0 7 * * *")` above a task declares one, '
            "and a worker that starts makes it known"
        )


def _perform(target: Target, operation: Operation[T], **arguments: Any) -> tuple[T, bool, datetime]:
    """Return the result of an operation, True if a worker is running, and the database's time."""

    async def action(app: Rota) -> tuple[T, bool, datetime]:
        from rota.operations.workers import WorkerListQuery, list_workers

        context = operator_context(app)
        found = await operation.call(context, **arguments)
        fleet = await list_workers.call(context, query=WorkerListQuery())
        return found, bool(fleet.workers), await context.now()

    return target.run(action)


@schedules.command()
@with_target
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of past ticks.",
)
@json_option
def show(target: Target, name: str, limit: int, as_json: bool) -> None:
    """Show the schedule NAME: its definition, its next five ticks and its latest ticks.

    Times are in the schedule's zone, the next ticks also in UTC.
    """
    from rota.operations.schedules import TickListQuery, show_schedule

    query = TickListQuery(limit)
    schedule, has_workers, now = _perform(target, show_schedule, name=name, query=query)
    if as_json:
        output.print_json(schedule)
    else:
        print_schedule(schedule, schedule.ticks or [], has_workers, now)


@schedules.command()
@with_target
@click.argument("name")
@click.option(
    "--reason",
    default="by hand",
    show_default=True,
    metavar="TEXT",
    help="Reason for the pause, shown with the schedule.",
)
@json_option
def pause(target: Target, name: str, reason: str, as_json: bool) -> None:
    """Pause the schedule NAME until it is resumed. Deployments do not change that."""

    from rota.operations.schedules import PauseScheduleRequest, pause_schedule

    try:
        body = PauseScheduleRequest(reason)
        schedule, _ = target.perform(pause_schedule, name=name, body=body)
    except ArgumentError as error:
        raise CommandError(str(error), NOT_FOUND) from None
    _print_result(as_json, schedule, f"schedule {name!r} is paused: {reason}")


@schedules.command()
@with_target
@click.argument("name")
@json_option
def resume(target: Target, name: str, as_json: bool) -> None:
    """Resume the schedule NAME with its next tick. Missed ticks can be backfilled."""

    from rota.operations.schedules import resume_schedule

    try:
        schedule, _ = target.perform(resume_schedule, name=name)
    except ArgumentError as error:
        raise CommandError(str(error), NOT_FOUND) from None
    next_tick = output.format_time(schedule.next[0]) if schedule.next else "soon"
    _print_result(
        as_json,
        schedule,
        f"schedule {name!r} is active; its next tick is {next_tick}",
    )


@schedules.command()
@with_target
@click.argument("name")
@json_option
def trigger(target: Target, name: str, as_json: bool) -> None:
    """Start a run of the schedule NAME now, in addition to its ticks. Prints the run's id.

    A task's queue is defined in its code, so this needs -a MODULE:APP (or ROTA_APP).
    """
    _require_app(target)
    from rota.operations.schedules import trigger_schedule

    started, _ = target.perform(trigger_schedule, name=name)
    _print_result(as_json, started, str(started.run))


@schedules.command()
@with_target
@click.argument("name")
@click.option("--from", "start", type=TimeParameter(), required=True, help="Start of the period.")
@click.option(
    "--to", "end", type=TimeParameter(), help="End of the period, exclusive; default: now."
)
@json_option
def backfill(
    target: Target, name: str, start: datetime, end: datetime | None, as_json: bool
) -> None:
    """Start runs of the schedule NAME for past ticks that had none.

    A time without a zone is in the schedule's zone: `--from 2026-03-01 --to '2026-03-02 07:30'`. The
    command can be repeated: a tick that has a run gets no other. Needs -a MODULE:APP (or ROTA_APP).
    """
    _require_app(target)
    from rota.operations.schedules import BackfillResult

    async def backfill_ticks(app: Rota) -> list[int]:
        from rota.store.read import runs

        schedule = await app.schedules.get(name)
        [now] = await (await app.open()).database.run(runs.database_time())
        until = now if end is None else _in_zone(schedule, end)
        begin = _in_zone(schedule, start)
        started_runs = await app.schedules.backfill(
            name, begin, until, on_progress=_print_progress, by=owner.current_operator()
        )
        return [run.id for run in started_runs]

    started_runs = target.run(backfill_ticks)
    if not started_runs:
        words = (
            "no run was started: the schedule has no tick in this period, or every tick has a run"
        )
    elif len(started_runs) == 1:
        words = f"1 run was started: {started_runs[0]}"
    else:
        words = (
            f"{output.format_count(len(started_runs))} runs were started: {started_runs[0]} "
            f"to {started_runs[-1]}"
        )
    _print_result(as_json, BackfillResult(started_runs), words)


def _print_progress(done: int, total: int) -> None:
    if done < total:
        print_note(f"{output.format_count(done)} of {output.format_count(total)} ticks")


def _in_zone(schedule: Schedule, time: datetime) -> datetime:
    from rota.model.timetable import load_zone

    return time if time.tzinfo is not None else time.replace(tzinfo=load_zone(schedule.tz))


@schedules.command()
@with_target
@click.argument("name")
@click.option(
    "--yes", is_flag=True, help="Delete the schedule. Without it, only describe the effect."
)
@json_option
def delete(target: Target, name: str, yes: bool, as_json: bool) -> None:
    """Delete the schedule NAME and the records of its ticks. Runs that it has started continue."""

    async def delete_schedule(app: Rota) -> None:
        schedule = await app.schedules.get(name)
        if not yes:
            output.print_text(
                f"schedule {name!r} ({format_timetable(schedule)}, {format_target(schedule)}) "
                "would be deleted, with "
                f"the records of its ticks; it has started {counted(schedule.runs, 'run')}."
            )
            if schedule.declared and schedule.state != "disabled":
                output.print_text(
                    "It is declared in code: while a running worker declares it, it cannot be deleted. "
                    "Pause it instead."
                )
            print_error("nothing was deleted; repeat the command with --yes to delete it")
            exit_with(FAILED)
        await app.schedules.delete(name, by=owner.current_operator())
        _print_result(as_json, {"schedule": name, "deleted": True}, f"schedule {name!r} is deleted")

    target.run(delete_schedule)


def _require_app(target: Target) -> None:
    if target.app is None:
        raise CommandError(
            "this command needs the app's code: use -a MODULE:APP, or set ROTA_APP", USAGE_ERROR
        )


def _print_result(as_json: bool, document: Any, text: str) -> None:
    if as_json:
        output.print_json(document)
    else:
        output.print_text(text)
