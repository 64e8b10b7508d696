"""`rota queues`: what waits, for how long, and whether anybody will come for it; and have nobody come."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint, whom
from rota.cli.endings import NOT_THERE, Told, note
from rota.cli.target import Target, goes_on, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.queues import Pause
    from rota.store.views import Places, QueueLine


@click.group(invoke_without_command=True)
@with_target
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def queues(target: Target, as_json: bool) -> None:
    """List what waits in each queue, by task, and who would take it; pause one, resume it."""
    if goes_on(target):
        return
    from rota.store import views

    async def asking(app: Rota) -> tuple[list[QueueLine], Places, list[Pause], datetime]:
        database = (await app.open()).database
        lines = await database.run(views.queues())
        [places] = await database.run(views.places())
        [now] = await database.run(views.clock())
        return lines, places, await app.queues.paused(), now

    lines, places, pauses, now = target.ask(asking)
    since = {each.queue: each.since for each in pauses}
    if as_json:
        paint.say_json([{**paint.fields(each), "paused": since.get(each.queue)} for each in lines])
        return
    if any(each.ready for each in lines):
        _print_queues(lines)
        click.echo()
    else:
        paint.say("nothing waits in any queue")
    paint.say(
        f"{paint.number(places.running)} running, {paint.number(places.asleep)} asleep", "dim"
    )
    if places.quarantined:
        paint.say(
            f"{paint.number(places.quarantined)} in quarantine, tried no more until somebody "
            "decides; see `rota quarantine`",
            "magenta",
        )
    for pause in pauses:
        why = f", {paint.line(pause.why)}" if pause.why else ""
        who = f" by {paint.line(pause.who)}" if pause.who else ""
        paint.say(
            f"queue {pause.queue!r} is paused, for {paint.age(pause.since, now)}{who}{why}: nobody takes "
            f"from it until `rota queues resume {pause.queue}`",
            "yellow",
        )
    for each in lines:
        if each.ready and not each.workers and each.queue not in since:
            paint.say(
                f"no worker is there that serves queue {each.queue!r} and knows task "
                f"{each.task!r}: {_jobs(each.ready)} until one is started",
                "yellow",
            )


@queues.command()
@with_target
@click.argument("name")
@click.option("--why", default="", metavar="WORDS", help="What for, for whoever wonders.")
def pause(target: Target, name: str, why: str) -> None:
    """Have nobody take from the queue NAME: what runs ends as ever, what is ready waits."""

    async def pausing(app: Rota) -> bool:
        return await app.queues.pause(name, why, by=whom.operator())

    if target.ask(pausing):
        click.echo(f"queue {name!r} is paused")
    else:
        note(f"queue {name!r} was paused already")


@queues.command()
@with_target
@click.argument("name")
def resume(target: Target, name: str) -> None:
    """Have the jobs of the queue NAME taken again."""

    async def resuming(app: Rota) -> bool:
        return await app.queues.resume(name, by=whom.operator())

    if not target.ask(resuming):
        raise Told(f"queue {name!r} is not paused", NOT_THERE)
    click.echo(f"queue {name!r} goes on")


def _print_queues(lines: list[QueueLine]) -> None:
    quarantined = any(each.quarantined for each in lines)
    table = paint.table(
        "queue",
        "task",
        "ready",
        "oldest",
        "workers",
        *(["quarantined"] if quarantined else []),
        right=("ready", "oldest", "workers", "quarantined"),
        free=("queue", "task"),
    )
    for each in lines:
        table.add_row(
            paint.text(each.queue),
            paint.text(each.task),
            paint.text(paint.number(each.ready)),
            paint.text(paint.span(each.oldest)),
            paint.text(each.workers or "none", "yellow" if each.ready and not each.workers else ""),
            *([_aside(each.quarantined)] if quarantined else []),
        )
    paint.show(table)


def _aside(quarantined: int) -> Text:
    return paint.text(paint.number(quarantined) if quarantined else "", "magenta")


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{paint.number(count)} jobs wait"
