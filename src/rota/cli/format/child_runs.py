"""Table of child runs, for flows' runs and single jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli import output

if TYPE_CHECKING:
    from rota.store.read.runs import ChildRunRow

MAX_LISTED_RUNS = 20
"""Maximum number of listed runs; succeeded ones are omitted first."""


def print_child_runs(children: list[ChildRunRow]) -> None:
    # A call that only starts flows has no job: only these flows are listed.
    with_jobs = [each for each in children if each.jobs]
    if not with_jobs:
        return
    listed = sorted(with_jobs, key=lambda each: each.state == "succeeded")[:MAX_LISTED_RUNS]
    output.console().print()
    grid = output.new_table(
        "child run",
        "parent job",
        "flow",
        "jobs",
        "state",
        right=("child run", "parent job", "jobs"),
        free=("flow",),
    )
    for each in sorted(listed, key=lambda each: each.run):
        grid.add_row(
            output.cell(each.run),
            output.cell(each.parent),
            output.cell(each.flow or "-", "" if each.flow else "dim"),
            output.cell(output.format_count(each.jobs)),
            output.state_cell(each.state),
        )
    output.print_renderable(grid)
    if len(with_jobs) > MAX_LISTED_RUNS:
        output.print_text(
            f"and {output.format_count(len(with_jobs) - MAX_LISTED_RUNS)} more runs; --json has all",
            "dim",
        )
