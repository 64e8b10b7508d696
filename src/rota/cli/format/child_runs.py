"""Runs that jobs have started: what a flow's run and a single job are shown with alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.cli import output

if TYPE_CHECKING:
    from rota.store.read.runs import ChildRunRow

MAX_LISTED_RUNS = 20
"""How many are listed; those that went well are the first to be left out."""


def child_run_documents(children: list[ChildRunRow]) -> list[dict[str, Any]]:
    return [{**output.fields(each), "flow": each.flow or None} for each in children]


def print_child_runs(children: list[ChildRunRow]) -> None:
    # Calls of flows alone have no job of their own: only the flows are worth a line.
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
