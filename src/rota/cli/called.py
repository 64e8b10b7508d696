"""Runs that jobs have started: what a flow's run and a single job are shown with alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.cli import paint

if TYPE_CHECKING:
    from rota.store.views import CalledLine

LISTED = 20
"""How many are listed; those that went well are the first to be left out."""


def called_documents(called: list[CalledLine]) -> list[dict[str, Any]]:
    return [{**paint.fields(each), "flow": each.flow or None} for each in called]


def print_called(called: list[CalledLine]) -> None:
    # Calls of flows alone have no job of their own: only the flows are worth a line.
    worth = [each for each in called if each.jobs]
    if not worth:
        return
    urgent = sorted(worth, key=lambda each: each.state == "succeeded")[:LISTED]
    paint.console().print()
    table = paint.table(
        "called",
        "by job",
        "flow",
        "jobs",
        "state",
        right=("called", "by job", "jobs"),
        free=("flow",),
    )
    for each in sorted(urgent, key=lambda each: each.run):
        table.add_row(
            paint.text(each.run),
            paint.text(each.parent),
            paint.text(each.flow or "-", "" if each.flow else "dim"),
            paint.text(paint.number(each.jobs)),
            paint.state(each.state),
        )
    paint.show(table)
    if len(worth) > LISTED:
        paint.say(f"and {paint.number(len(worth) - LISTED)} more runs; --json has all", "dim")
