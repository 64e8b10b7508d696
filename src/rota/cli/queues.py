"""`rota queues`: what waits, for how long, and whether anybody will come for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.store.views import Places, QueueLine


@click.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def queues(target: Target, as_json: bool) -> None:
    """List what waits in each queue, by task, and who would take it."""
    from rota.store import views

    async def asking(app: Rota) -> tuple[list[QueueLine], Places]:
        database = (await app.open()).database
        lines = await database.run(views.queues())
        [places] = await database.run(views.places())
        return lines, places

    lines, places = target.ask(asking)
    if as_json:
        paint.say_json([paint.fields(each) for each in lines])
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
    for each in lines:
        if each.ready and not each.workers:
            paint.say(
                f"no worker is there that serves queue {each.queue!r} and knows task "
                f"{each.task!r}: {_jobs(each.ready)} until one is started",
                "yellow",
            )


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
