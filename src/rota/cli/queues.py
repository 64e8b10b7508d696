"""`rota queues`: what waits, for how long, and whether anybody will come for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
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
    if lines:
        _print_queues(lines)
        click.echo()
    else:
        paint.say("nothing waits in any queue")
    paint.say(
        f"{paint.number(places.running)} running, {paint.number(places.asleep)} asleep", "dim"
    )
    for each in lines:
        if not each.workers:
            paint.say(
                f"no worker is there that serves queue {each.queue!r} and knows task "
                f"{each.task!r}: {_jobs(each.ready)} until one is started",
                "yellow",
            )


def _print_queues(lines: list[QueueLine]) -> None:
    table = paint.table(
        "queue",
        "task",
        "ready",
        "oldest",
        "workers",
        right=("ready", "oldest", "workers"),
        free=("queue", "task"),
    )
    for each in lines:
        table.add_row(
            paint.text(each.queue),
            paint.text(each.task),
            paint.text(paint.number(each.ready)),
            paint.text(paint.span(each.oldest)),
            paint.text(each.workers or "none", "" if each.workers else "yellow"),
        )
    paint.show(table)


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{paint.number(count)} jobs wait"
