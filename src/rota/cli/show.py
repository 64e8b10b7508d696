"""`rota show`: one run, whatever it is: of a task, of a flow, of calls a job has made, or a job of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import show_flow, show_job
from rota.cli.runs import RUN
from rota.cli.target import Target, with_target
from rota.errors import RunNotFound

if TYPE_CHECKING:
    from rota import Rota


@click.command()
@with_target
@click.argument("run", type=RUN)
@click.option("--all", "whole", is_flag=True, help="Every job of a flow, every step of a job.")
@click.option("--json", "as_json", is_flag=True, help="A JSON document, for programs.")
def show(target: Target, run: int, whole: bool, as_json: bool) -> None:
    """Show one RUN: where it is and why, what went in and came out, its steps and attempts.

    A flow's is drawn as the graph of its jobs; #17 behind a name is the job's id, and `rota show 17` shows
    that job.
    """

    async def asking(app: Rota) -> show_flow.Report | show_job.Report:
        database = (await app.open()).database
        found = await show_flow.report(database, run, whole=as_json) or await show_job.report(
            database, run, every=whole or as_json, whole=as_json
        )
        if found is None:
            raise RunNotFound(f"there is no run {run}; `rota runs` lists those there are")
        return found

    report = target.ask(asking)
    if as_json:
        report.print_json()
    elif isinstance(report, show_flow.Report):
        report.print(kept=None if whole else show_flow.KEPT)
    else:
        report.print()
