"""`rota schedules`: what the clock starts and when, what became of it, and how to have a say in that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import rich_click as click

from rota.cli import paint, whom
from rota.cli.agenda import document, last, next_in, print_schedule, runs_of, state, when, why
from rota.cli.endings import FAILED, MISTAKE, NOT_THERE, Told, leave, note, tell
from rota.cli.target import Target, goes_on, with_target
from rota.errors import ArgumentError

if TYPE_CHECKING:
    from rota import Rota
    from rota.model.agenda import Schedule, Tick

STATES = ("active", "paused", "disabled", "ended")

ROOMY = 100
"""Columns of a terminal that has room for a tenant, and for a zone beside its expression."""

WIDE = 150
"""… and for reasons."""


class Moment(click.ParamType[datetime]):
    """A time, with a zone or without: then it is the schedule's own."""

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
                f"{value!r} is no time; write 2026-03-01, '2026-03-01 07:30' or 2026-03-01T07:30+01:00",
                param,
                ctx,
            )


as_json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@click.group(invoke_without_command=True)
@with_target
@click.option("--tenant", metavar="NAME", help="Of this tenant only.")
@click.option("--state", "only", type=click.Choice(STATES), help="In this state only.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="At most so many.",
)
@click.option("--after", metavar="NAME", help="Only those after this one.")
@as_json_option
def schedules(
    target: Target,
    tenant: str | None,
    only: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """List schedules: when each comes, what it starts, how it stands, and what became of its last tick.

    One that nobody knows names a task, a flow or an action that no worker has which is there: it is kept,
    and starts nothing.
    """
    if goes_on(target):
        return

    async def asking(app: Rota) -> tuple[list[Schedule], bool, datetime]:
        from rota.store import agenda, views

        database = (await app.open()).database
        query = agenda.schedules(tenant=tenant, state=only, after=after, limit=limit)
        found = await database.run(query)
        workers = await database.run(views.workers())
        [now] = await database.run(views.clock())
        return found, bool(workers), now

    found, manned, now = target.ask(asking)
    if as_json:
        paint.say_json([document(each) for each in found])
    elif found:
        _print_schedules(found, manned, now)
        if len(found) == limit:
            paint.hint(f"more: rota schedules --after {found[-1].name!r}")
    elif tenant or only or after:
        click.echo("no schedule fits")
    else:
        click.echo(
            'no schedule yet; `@app.schedule("0 7 * * *")` above a task declares one, '
            "and a worker that starts makes it known"
        )


def _print_schedules(found: Sequence[Schedule], manned: bool, now: datetime) -> None:
    """Columns that would say nothing of any of them are left out; where room is short, why something is as
    it is comes below."""
    width = paint.console().width
    whys = [why(each, manned=manned) for each in found]
    columns = {
        "schedule": [paint.whole(each.name) for each in found],
        "tenant": [paint.whole(each.tenant if width >= ROOMY else "") for each in found],
        "when": [paint.text(when(each, below=width < ROOMY)) for each in found],
        "starts": [paint.whole(_target(each)) for each in found],
        "state": [state(each, manned=manned) for each in found],
        "last": [last(each, now) for each in found],
        "next": [next_in(each, now) for each in found],
        "why": [paint.whole(each if width >= WIDE else "") for each in whys],
    }
    told = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    table = paint.table(*told, right=("next",), free=("schedule", "tenant", "starts", "why"))
    for cells in zip(*told.values(), strict=True):
        table.add_row(*cells)
    paint.show(table)
    if width < WIDE and any(whys):
        click.echo()
        for each, reason in zip(found, whys, strict=True):
            if reason:
                paint.say(f"{each.name}: {reason}", "yellow" if each.state != "disabled" else "dim")
    if not manned:
        click.echo()
        paint.say(
            "no worker is there, so nothing is started; start one with `rota worker MODULE:APP`",
            "yellow",
        )


def _target(schedule: Schedule) -> str:
    return schedule.target if schedule.kind == "task" else f"{schedule.kind} {schedule.target}"


@schedules.command()
@with_target
@click.argument("name")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="At most so many of its last ticks.",
)
@as_json_option
def show(target: Target, name: str, limit: int, as_json: bool) -> None:
    """Show the schedule NAME: how it is defined, its next five ticks, and what became of the last ones.

    Times are in its own zone, the next ticks in UTC as well.
    """

    async def asking(app: Rota) -> tuple[Schedule, list[Tick], bool, datetime]:
        from rota.store import views

        schedule = await app.schedules.get(name)
        ticks = await app.schedules.ticks(name, limit)
        database = (await app.open()).database
        workers = await database.run(views.workers())
        [now] = await database.run(views.clock())
        return schedule, ticks, bool(workers), now

    schedule, ticks, manned, now = target.ask(asking)
    if as_json:
        more = [document(each) for each in ticks]
        paint.say_json({**document(schedule), "ticks": more})
    else:
        print_schedule(schedule, ticks, manned, now)


@schedules.command()
@with_target
@click.argument("name")
@click.option(
    "--why", "reason", default="by hand", show_default=True, metavar="TEXT", help="Said to others."
)
@as_json_option
def pause(target: Target, name: str, reason: str, as_json: bool) -> None:
    """Pause the schedule NAME: it starts nothing until it is resumed, whatever is deployed meanwhile."""

    async def pausing(app: Rota) -> Schedule:
        try:
            await app.schedules.pause(name, reason, by=whom.operator())
        except ArgumentError as error:
            raise Told(str(error), NOT_THERE) from None
        return await app.schedules.get(name)

    schedule = target.ask(pausing)
    _say(as_json, document(schedule), f"schedule {name!r} is paused: {reason}")


@schedules.command()
@with_target
@click.argument("name")
@as_json_option
def resume(target: Target, name: str, as_json: bool) -> None:
    """Let the schedule NAME go on with its next tick; those it missed can be backfilled."""

    async def resuming(app: Rota) -> Schedule:
        try:
            await app.schedules.resume(name, by=whom.operator())
        except ArgumentError as error:
            raise Told(str(error), NOT_THERE) from None
        return await app.schedules.get(name)

    schedule = target.ask(resuming)
    following = paint.clock(schedule.next[0]) if schedule.next else "soon"
    _say(as_json, document(schedule), f"schedule {name!r} is active; its next tick is {following}")


@schedules.command()
@with_target
@click.argument("name")
@as_json_option
def trigger(target: Target, name: str, as_json: bool) -> None:
    """Start a run of the schedule NAME now, besides those of its ticks. Prints the run's id.

    Which queue a task waits in is in its code, so this needs -a MODULE:APP (or ROTA_APP).
    """
    _need_code(target)

    async def triggering(app: Rota) -> int:
        return (await app.schedules.trigger(name, by=whom.operator())).id

    run = target.ask(triggering)
    _say(as_json, {"schedule": name, "run": run}, str(run))


@schedules.command()
@with_target
@click.argument("name")
@click.option("--from", "start", type=Moment(), required=True, help="The first time of them.")
@click.option("--to", "end", type=Moment(), help="Up to before then; now, unless said.")
@as_json_option
def backfill(
    target: Target, name: str, start: datetime, end: datetime | None, as_json: bool
) -> None:
    """Start runs of the schedule NAME for ticks of a time that is over, where they had none.

    A time without a zone is one of the schedule's own: `--from 2026-03-01 --to '2026-03-02 07:30'`. It can
    be done again: what has had a run gets no other. Needs -a MODULE:APP (or ROTA_APP).
    """
    _need_code(target)

    async def filling(app: Rota) -> list[int]:
        from rota.store import views

        schedule = await app.schedules.get(name)
        [now] = await (await app.open()).database.run(views.clock())
        until = now if end is None else _in_zone(schedule, end)
        begin = _in_zone(schedule, start)
        runs = await app.schedules.backfill(name, begin, until, told=_tell, by=whom.operator())
        return [run.id for run in runs]

    runs = target.ask(filling)
    if not runs:
        words = "nothing was started: the schedule has no tick in that time, or all have had a run"
    elif len(runs) == 1:
        words = f"1 run was started: {runs[0]}"
    else:
        words = f"{paint.number(len(runs))} runs were started: {runs[0]} to {runs[-1]}"
    _say(as_json, {"schedule": name, "runs": runs}, words)


def _tell(done: int, many: int) -> None:
    if done < many:
        note(f"{paint.number(done)} of {paint.number(many)} ticks")


def _in_zone(schedule: Schedule, moment: datetime) -> datetime:
    from rota.model.timetable import zone

    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone(schedule.tz))


@schedules.command()
@with_target
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do it. Without, it only says what would happen.")
@as_json_option
def delete(target: Target, name: str, yes: bool, as_json: bool) -> None:
    """Forget the schedule NAME and what became of its ticks. Runs that it has started go on."""

    async def deleting(app: Rota) -> None:
        schedule = await app.schedules.get(name)
        if not yes:
            paint.say(
                f"schedule {name!r} ({when(schedule)}, {_target(schedule)}) would be forgotten, with "
                f"what became of its ticks; it has started {runs_of(schedule.runs)}."
            )
            if schedule.declared and schedule.state != "disabled":
                paint.say(
                    "It was declared in code: it stays while a worker that is there declares it. "
                    "Pausing lasts."
                )
            tell("nothing was done; to do it, say --yes")
            leave(FAILED)
        await app.schedules.delete(name, by=whom.operator())
        _say(as_json, {"schedule": name, "deleted": True}, f"schedule {name!r} is forgotten")

    target.ask(deleting)


def _need_code(target: Target) -> None:
    if target.app is None:
        raise Told(
            "this needs the code of what it starts: say -a MODULE:APP, or set ROTA_APP", MISTAKE
        )


def _say(as_json: bool, document: dict[str, Any], words: str) -> None:
    if as_json:
        paint.say_json(document)
    else:
        paint.say(words)
