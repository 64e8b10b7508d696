"""`rota runs`, `cancel`, `retry` and `fork`: which runs there are, and what to do about one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.documents import read_object
from rota.cli.endings import NOT_THERE, OK, Told, code_of, leave, tell
from rota.cli.matching import asker, is_narrow, matching_options, to_all
from rota.cli.target import Target, with_target
from rota.cli.waits import brief
from rota.errors import RotaError

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.listing import Matching
    from rota.store.views import RunLine


class RunId(click.IntRange):
    name = "run's id"


RUN = RunId(1, 2**63 - 1)

LOOKED_WITHIN = 5.0
"""Seconds; what was not looked through by then is for the next time."""


@click.command()
@with_target
@matching_options
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--before", type=RUN, metavar="RUN", help="Only those started before this one.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def runs(target: Target, matching: Matching, limit: int, before: int | None, as_json: bool) -> None:
    """List runs of tasks and flows, the latest first."""
    from rota.app import listing
    from rota.store import views

    async def asking(app: Rota) -> tuple[list[RunLine], int | None, datetime]:
        database = (await app.open()).database
        ask = asker(database)
        meant = listing.of_kind(app, matching)
        found = await listing.find(
            ask, meant, limit, before=before or views.NEWEST, seconds=LOOKED_WITHIN
        )
        [now] = await database.run(views.clock())
        return await listing.lines(ask, meant, found.spots), found.next, now

    found, further, now = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each) for each in found])
        return
    if found:
        _print_runs(found, now)
    elif further is None:
        narrow = is_narrow(matching) or before
        click.echo("no run fits" if narrow else "no runs yet; start one with `rota start TASK`")
    else:
        click.echo("no run fits, as far as was looked")
    if further is not None:
        paint.hint(f"older ones: rota runs --before {further}")
    if matching.states == ("quarantined",):
        paint.hint("jobs of flows are listed by `rota quarantine`")


def _print_runs(found: list[RunLine], now: datetime) -> None:
    """Columns that would say the same of every run are left out."""
    has_flows = any(each.is_flow for each in found)
    has_keys = any(each.key is not None for each in found)
    details = {each.run: _detail(each, now) for each in found}
    has_details = any(details.values())
    table = paint.table(
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
        table.add_row(
            paint.text(each.run),
            paint.text(each.name),
            *([paint.text("flow" if each.is_flow else "task", "dim")] if has_flows else []),
            paint.text("-", "dim") if each.queue is None else paint.text(each.queue),
            paint.state(each.state),
            paint.text(each.attempt, "" if each.attempt > 1 else "dim"),
            paint.text(paint.age(each.created, now)),
            *([paint.text(each.key)] if has_keys else []),
            *([paint.text(details[each.run])] if has_details else []),
        )
    paint.show(table)


def _detail(line: RunLine, now: datetime) -> str:
    words = brief(line, now)
    return f"{words}: {paint.line(line.note)}" if words and line.note else words


@click.command()
@with_target
@click.argument("runs", metavar="[RUN...]", type=RUN, nargs=-1)
@click.option("--all", "whole", is_flag=True, help="All that match; nothing said, all there are.")
@matching_options
@click.option("--yes", is_flag=True, help="With --all: do not ask whether so many are meant.")
def cancel(
    target: Target, runs: tuple[int, ...], whole: bool, matching: Matching, yes: bool
) -> None:
    """Cancel RUN: make it not happen, or ask its worker to stop it.

    A flow's run goes as a whole, with the runs its jobs have started. A job of a flow goes alone, and those
    that wait for it go by their rules. With --all, whatever matches and is not over; runs that start
    meanwhile are not touched.
    """
    if _are_all(runs, whole, matching, yes):
        to_all(target, "cancel", matching, yes=yes)
        return

    async def cancelling(app: Rota, run: int) -> None:
        name = await what(app, run)
        answer = await app.run(run).cancel(by=whom.operator())
        match answer:
            case "cancelled":
                click.echo(f"{name} is cancelled")
            case "requested":
                click.echo(f"{name} is running; its worker has been asked to stop it")
            case "skipped":
                raise Told(f"{name} was skipped already", NOT_THERE)
            case _:
                raise Told(f"{name} has {answer} already", NOT_THERE)

    each_of(target, runs, cancelling)


@click.command()
@with_target
@click.argument("runs", metavar="[RUN...]", type=RUN, nargs=-1)
@click.option("--all", "whole", is_flag=True, help="All that match; nothing said, all there are.")
@matching_options
@click.option("--yes", is_flag=True, help="With --all: do not ask whether so many are meant.")
def retry(
    target: Target, runs: tuple[int, ...], whole: bool, matching: Matching, yes: bool
) -> None:
    """Try RUN once more, although it failed, expired or was cancelled.

    Of a flow, what failed and all that waits for it runs again; what succeeded keeps its results. With
    --all, whatever matches and ended badly.
    """
    if _are_all(runs, whole, matching, yes):
        to_all(target, "retry", matching, yes=yes)
        return

    async def retrying(app: Rota, run: int) -> None:
        await app.run(run).retry(by=whom.operator())
        click.echo(f"run {run} is ready to be tried again")

    each_of(target, runs, retrying)


@click.command()
@with_target
@click.argument("run", type=RUN)
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

    async def forking(app: Rota) -> int:
        if step is None:
            return (await app.fork(run, from_=str(task), by=whom.operator())).id
        return (await app.fork(run, from_step=step, input=input, by=whom.operator())).id

    click.echo(target.ask(forking))


def _are_all(runs: tuple[int, ...], whole: bool, matching: Matching, yes: bool) -> bool:
    if whole == bool(runs):
        raise click.UsageError("say which: RUN..., or --all and what they are like")
    if not whole and (is_narrow(matching) or yes):
        raise click.UsageError("what they are like goes with --all; say that, too")
    return whole


async def what(app: Rota, id: int) -> str:
    """A run, or a job of one."""
    from rota.store import views

    found = await (await app.open()).database.one(views.run(id))
    if found is None or found.run == id:
        return f"run {id}"
    return f"job {id} of run {found.run}"


def each_of(
    target: Target, runs: tuple[int, ...], do: Callable[[Rota, int], Awaitable[None]]
) -> None:
    """Do it to every run; one that cannot does not spare the others, and decides the exit code."""

    async def doing(app: Rota) -> int:
        code = OK
        for run in runs:
            try:
                await do(app, run)
            except RotaError as error:
                tell(str(error))
                code = code_of(error)
            except Told as error:
                tell(error.message)
                code = error.exit_code
        return code

    leave(target.ask(doing))
