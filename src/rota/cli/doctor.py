"""`rota doctor`: checks of the database, with a fix for each problem."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, exit_with
from rota.cli.target import Target, operator_context, with_target
from rota.model.text import counted, single_line

if TYPE_CHECKING:
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

    from rota.operations.maintenance import check_database

    # The checks also run on a database without Rota's schema.
    found = target.run_unchecked(lambda app: check_database.call(operator_context(app)))
    if as_json:
        output.print_json(found)
    else:
        _print(found.checks)
        output.print_text(f"\n{_summary(found.checks)}", "" if found.healthy else "red")
    if not found.healthy:
        exit_with(FAILED)


def _print(found: list[CheckResult]) -> None:
    grid = output.new_table("", "check", "finding", free=("finding",))
    grid.show_header = False
    for each in sorted(found, key=lambda each: each.rank):
        title, style = LEVEL_STYLES[each.level]
        words = output.cell(single_line(each.message))
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
