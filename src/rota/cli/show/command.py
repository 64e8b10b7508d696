"""`rota show`: a run of a task or flow, the calls of a job, or a single job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from rota.cli.runs import RUN_ID
from rota.cli.show import flow, job
from rota.cli.target import Target, with_target
from rota.errors import RunNotFound

if TYPE_CHECKING:
    from rota import Rota


@click.command()
@with_target
@click.argument("run", type=RUN_ID)
@click.option("--all", "show_all", is_flag=True, help="Every job of a flow, every step of a job.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def show(target: Target, run: int, show_all: bool, as_json: bool) -> None:
    """Show one RUN: its state and the reason, arguments and result, steps and attempts.

    A flow's run is drawn as the graph of its jobs; #17 after a name is the job's id, and `rota show 17`
    shows that job.
    """

    async def query(app: Rota) -> flow.FlowReport | job.JobReport:
        database = (await app.open()).database
        found = await flow.load_report(database, run, with_values=as_json) or await job.load_report(
            database, run, all_steps=show_all or as_json, with_values=as_json
        )
        if found is None:
            raise RunNotFound(f"there is no run {run}; list the runs with `rota runs`")
        return found

    report = target.run(query)
    if as_json:
        report.print_json()
    elif isinstance(report, flow.FlowReport):
        report.print(max_similar=None if show_all else flow.MAX_SIMILAR)
    else:
        report.print()
