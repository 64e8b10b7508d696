"""Table of child runs, for flows' runs and single jobs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rota.cli import output
from rota.cli.table import Column, Table

if TYPE_CHECKING:
    from rota.store.read.runs import ChildRunRow

MAX_LISTED_RUNS = 20
"""Maximum number of listed runs; succeeded ones are omitted first."""


def print_child_runs(children: list[ChildRunRow], now: datetime) -> None:
    # A call that only starts flows has no job: only these flows are listed.
    with_jobs = [each for each in children if each.jobs]
    if not with_jobs:
        return
    listed = sorted(with_jobs, key=lambda each: each.state == "succeeded")[:MAX_LISTED_RUNS]
    output.console().print()
    CHILD_RUNS.print(sorted(listed, key=lambda each: each.run), now)
    if len(with_jobs) > MAX_LISTED_RUNS:
        output.print_text(
            f"and {output.format_count(len(with_jobs) - MAX_LISTED_RUNS)} more runs; --json has all",
            "dim",
        )


CHILD_RUNS = Table["ChildRunRow"](
    Column("child run", lambda row, now: row.run, right=True),
    Column("parent job", lambda row, now: row.parent, right=True),
    Column(
        "flow",
        lambda row, now: row.flow or "-",
        lambda row: "" if row.flow else "dim",
        shrinks=True,
    ),
    Column("jobs", lambda row, now: output.format_count(row.jobs), right=True),
    Column("state", lambda row, now: row.state, lambda row: output.STATE_STYLES[row.state]),
)
