"""`rota doctor`: is the database well, for what Rota does in it, and what mends what is not."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import paint
from rota.cli.endings import FAILED, leave
from rota.cli.target import Target, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.model.checkup import Checked

LOOKS = {
    "ok": ("ok", "green"),
    "notice": ("notice", "yellow"),
    "problem": ("problem", "red"),
    "unseen": ("unseen", "blue"),
}


@click.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
def doctor(target: Target, as_json: bool) -> None:
    """Look the database over: pooler, old snapshots, dead rows, indexes, clocks, jobs that nobody takes.

    Each finding comes with the figure it was judged by and what mends it. It only reads, with whatever
    rights it has, and says what it could not see. Exit code 1 if there is a problem, 0 if there is none;
    notices are no problem.
    """

    async def looking(app: Rota) -> list[Checked]:
        from rota.engine.doctor import look_over

        database = (await app.open()).database
        return [each async for each in look_over(database, _now)]

    began = time.perf_counter()
    found = target.ask_unchecked(looking)
    took = time.perf_counter() - began
    problems = [each for each in found if each.level == "problem"]
    if as_json:
        paint.say_json({"well": not problems, "took": round(took, 3), "found": found})
    else:
        _print(found)
        paint.say(f"\n{_summary(found)}", "red" if problems else "")
    if problems:
        leave(FAILED)


def _now() -> datetime:
    return datetime.now(UTC)


def _print(found: list[Checked]) -> None:
    table = paint.table("", "check", "finding", free=("finding",))
    table.show_header = False
    for each in sorted(found, key=lambda each: each.rank):
        word, colour = LOOKS[each.level]
        words = paint.text(paint.line(each.words))
        words.no_wrap = False
        table.add_row(paint.text(word, colour), paint.text(each.check), words)
        if each.fix is not None and each.level != "ok":
            # To the last letter: somebody is going to paste it.
            table.add_row("", paint.text("fix", "dim"), paint.whole(each.fix, "bold"))
    paint.show(table)


def _summary(found: list[Checked]) -> str:
    def many(level: str, one: str, several: str) -> str:
        count = sum(each.level == level for each in found)
        return f"{count} {one if count == 1 else several}"

    words = f"{many('problem', 'problem', 'problems')}, {many('notice', 'notice', 'notices')}"
    if any(each.level == "unseen" for each in found):
        words += f", {many('unseen', 'check', 'checks')} could not be made"
    return words
