"""`rota doctor`: checks of the database, with a fix for each problem."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, exit_with
from rota.cli.target import Target, with_target
from rota.model.text import counted

if TYPE_CHECKING:
    from rota import Rota
    from rota.model.check_result import CheckResult

LEVEL_STYLES = {
    "ok": ("ok", "green"),
    "notice": ("notice", "yellow"),
    "problem": ("problem", "red"),
    "unchecked": ("unchecked", "blue"),
}


@click.command()
@with_target
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(target: Target, as_json: bool) -> None:
    """Check the database: pooler, old snapshots, dead rows, indexes, clocks, jobs that no worker can run.

    Each finding includes the measured value and a fix. The command only reads, and reports checks that
    its role does not allow. Exit code 1 if there is a problem, else 0; notices are not problems.
    """

    async def query(app: Rota) -> list[CheckResult]:
        from rota.engine.diagnosis.doctor import run_checks

        database = (await app.open()).database
        return [each async for each in run_checks(database, _now)]

    began = time.perf_counter()
    found = target.run_unchecked(query)
    seconds = time.perf_counter() - began
    problems = [each for each in found if each.level == "problem"]
    if as_json:
        output.print_json({"healthy": not problems, "seconds": round(seconds, 3), "checks": found})
    else:
        _print(found)
        output.print_text(f"\n{_summary(found)}", "red" if problems else "")
    if problems:
        exit_with(FAILED)


def _now() -> datetime:
    return datetime.now(UTC)


def _print(found: list[CheckResult]) -> None:
    grid = output.new_table("", "check", "finding", free=("finding",))
    grid.show_header = False
    for each in sorted(found, key=lambda each: each.rank):
        title, style = LEVEL_STYLES[each.level]
        words = output.cell(output.single_line(each.message))
        words.no_wrap = False
        grid.add_row(output.cell(title, style), output.cell(each.check), words)
        if each.fix is not None and each.level != "ok":
            # Never truncated: users paste it.
            grid.add_row("", output.cell("fix", "dim"), output.wrapped_cell(each.fix, "bold"))
    output.print_renderable(grid)


def _summary(found: list[CheckResult]) -> str:
    levels = Counter(each.level for each in found)
    words = f"{counted(levels['problem'], 'problem')}, {counted(levels['notice'], 'notice')}"
    if levels["unchecked"]:
        words += f", {counted(levels['unchecked'], 'check')} could not be made"
    return words
