"""`rota explain`: why something does not run, and what to do."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from rota.cli import paint
from rota.cli.endings import FAILED, leave
from rota.cli.runs import RUN
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.model.why import Reason, Why

COLOURS = {"ended": "dim", "running": "cyan", "waiting": "blue", "stuck": "yellow"}


@click.command()
@with_target
@click.argument("id", type=RUN)
@click.option("--json", "as_json", is_flag=True, help="A JSON document, for programs.")
def explain(target: Target, id: int, as_json: bool) -> None:
    """Say why the run or job ID does not run: what it waits for, and what to do.

    A job that waits for others is followed to what holds all of them up; that is said first. Exit code 1:
    it goes no further until somebody does something; 0: it runs, has ended, or goes on by itself.
    """

    async def asking(app: Rota) -> Why:
        return await app.run(id).why()

    found = target.ask(asking)
    if as_json:
        paint.say_json(msgspec.structs.asdict(found))
    else:
        _print(found)
    if found.is_stuck:
        leave(FAILED)


def _print(why: Why) -> None:
    what = f"run {why.id}" if why.is_flow or why.id == why.run else f"job {why.id} of run {why.run}"
    name = f" ({why.name})" if why.name else ""
    paint.console().print(
        paint.text(f"{what}{name}", "bold"),
        paint.text(why.verdict, COLOURS[why.verdict]),
        end="\n\n",
    )
    first, *rest = why.reasons
    pairs = [("why", _words(first, why.now))]
    if first.do:
        pairs.append(("do", first.do))
    for each in rest:
        pairs.append(("", ""))
        pairs.append(("perhaps" if not each.sure else "and", _words(each, why.now)))
        if each.do and each.do != first.do:
            pairs.append(("do", each.do))
    paint.show(paint.facts(pairs))
    if why.left_out:
        paint.say(f"\n{paint.number(why.left_out)} more jobs were not looked at", "dim")


def _words(reason: Reason, now: datetime) -> str:
    words = reason.words
    if reason.jobs > 1:
        more = "1 more job" if reason.jobs == 2 else f"{paint.number(reason.jobs - 1)} more jobs"
        words += f" (and {more} likewise)"
    if reason.until is not None:
        left = (reason.until - now).total_seconds()
        when = f"in {paint.span(left)}" if left > 0 else "which has come"
        words += f"; until {paint.clock(reason.until)}, {when}"
    elif reason.since is not None:
        words += f"; for {paint.age(reason.since, now)}"
    return f"{words}: {paint.line(reason.detail)}" if reason.detail else words
