"""`rota show`: a run of a task or flow, the calls of a job, or a single job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.runs import RUN_ID
from rota.cli.show.flow import MAX_SIMILAR, print_flow
from rota.cli.show.job import print_job
from rota.cli.show.steps import MAX_LOG_LINES, MAX_STEPS
from rota.cli.table import json_option
from rota.cli.target import Target, operator_context, with_target

if TYPE_CHECKING:
    from rota import Rota
    from rota.model.explanation import Explanation
    from rota.operations.run_detail import JobDetail


@click.command()
@with_target
@click.argument("run", type=RUN_ID)
@click.option("--all", "show_all", is_flag=True, help="Every job of a flow, every step of a job.")
@json_option
def show(target: Target, run: int, show_all: bool, as_json: bool) -> None:
    """Show one RUN: its state and the reason, arguments and result, steps and attempts.

    A flow's run is drawn as the graph of its jobs; #17 after a name is the job's id, and `rota show 17`
    shows that job.
    """
    from rota.operations.run_detail import FlowDetail, RunLimits, load_run
    from rota.operations.runs import explain_run, show_run

    if as_json:
        document, _ = target.perform(show_run, run=run)
        output.print_json(document)
        return

    async def load(app: Rota) -> tuple[FlowDetail | JobDetail, Explanation]:
        context = operator_context(app)
        limits = RunLimits() if show_all else RunLimits(steps=MAX_STEPS, logs=MAX_LOG_LINES)
        found = await load_run(context, run, limits, with_values=False)
        return found, await explain_run.call(context, run=run)

    detail, explanation = target.run(load)
    if isinstance(detail, FlowDetail):
        print_flow(detail, explanation, None if show_all else MAX_SIMILAR)
    else:
        print_job(detail, explanation)
