"""`rota runs`, `cancel`, `retry` and `fork`: which runs there are, and what to do about one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint
from rota.cli.endings import NOT_THERE, OK, Told, code_of, leave, tell
from rota.cli.target import Target, with_target
from rota.errors import RotaError

if TYPE_CHECKING:
    from rota import Rota
    from rota.store.views import RunLine


class RunId(click.IntRange):
    name = "run's id"


RUN = RunId(1, 2**63 - 1)

STATES = [state for state in paint.STATES if state not in ("waiting", "skipped")]
"""What a run can be in: only jobs wait for others, or are skipped."""


@click.command()
@with_target
@click.option("--task", "--flow", "name", metavar="NAME", help="Of this task or flow only.")
@click.option("--queue", metavar="NAME", help="Of this queue only; flows are in none.")
@click.option("--state", type=click.Choice(STATES), help="In this state only.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--before", type=RUN, metavar="RUN", help="Only those started before this one.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def runs(
    target: Target,
    name: str | None,
    queue: str | None,
    state: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """List runs of tasks and flows, the latest first."""
    from rota.store import views

    async def asking(app: Rota) -> tuple[list[RunLine], datetime]:
        database = (await app.open()).database
        query = views.runs(name, queue, state, before or views.NEWEST, limit)
        [now] = await database.run(views.clock())
        return await database.run(query), now

    found, now = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each) for each in found])
        return
    if not found:
        filtered = any((name, queue, state, before))
        click.echo("no run fits" if filtered else "no runs yet; start one with `rota start TASK`")
    else:
        _print_runs(found, now)
        if len(found) == limit:
            paint.hint(f"older ones: rota runs --before {found[-1].run}")
    if state == "quarantined":
        paint.hint("jobs of flows are listed by `rota quarantine`")


def _print_runs(found: list[RunLine], now: datetime) -> None:
    """Columns that would say the same of every run are left out."""
    has_flows = any(each.is_flow for each in found)
    has_keys = any(each.key is not None for each in found)
    table = paint.table(
        "run",
        "name" if has_flows else "task",
        *(["kind"] if has_flows else []),
        "queue",
        "state",
        "attempt",
        "age",
        *(["key"] if has_keys else []),
        right=("run", "attempt", "age"),
        free=("name", "task", "queue", "key"),
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
        )
    paint.show(table)


@click.command()
@with_target
@click.argument("runs", metavar="RUN...", type=RUN, nargs=-1, required=True)
def cancel(target: Target, runs: tuple[int, ...]) -> None:
    """Cancel RUN: make it not happen, or ask its worker to stop it.

    A flow's run goes as a whole, with the runs its jobs have started. A job of a flow goes alone, and those
    that wait for it go by their rules.
    """

    async def cancelling(app: Rota, run: int) -> None:
        name = await what(app, run)
        answer = await app.run(run).cancel()
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
@click.argument("runs", metavar="RUN...", type=RUN, nargs=-1, required=True)
def retry(target: Target, runs: tuple[int, ...]) -> None:
    """Try RUN once more, although it failed, expired or was cancelled.

    Of a flow, what failed and all that waits for it runs again; what succeeded keeps its results.
    """

    async def retrying(app: Rota, run: int) -> None:
        await app.run(run).retry()
        click.echo(f"run {run} is ready to be tried again")

    each_of(target, runs, retrying)


@click.command()
@with_target
@click.argument("run", type=RUN)
@click.option("--from", "task", metavar="TASK", required=True, help="The first that runs anew.")
def fork(target: Target, run: int, task: str) -> None:
    """Run a flow's RUN once more from TASK on, as a new run. Prints its id.

    TASK and all that waits for it run anew, and so does what has not succeeded; the rest keeps its results.
    """

    async def forking(app: Rota) -> int:
        return (await app.fork(run, from_=task)).id

    click.echo(target.ask(forking))


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
