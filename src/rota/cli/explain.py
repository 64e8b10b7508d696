"""`rota explain`: the reason why a run does not continue, and a remedy."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import FAILED, exit_with
from rota.cli.runs import RUN_ID
from rota.cli.table import json_option, list_command
from rota.cli.target import Target, with_target
from rota.model.text import single_line

if TYPE_CHECKING:
    from rota.model.explanation import Explanation, ExplanationReason

STATUS_STYLES = {"ended": "dim", "running": "cyan", "waiting": "blue", "stuck": "yellow"}


@click.command()
@with_target
@click.argument("id", type=RUN_ID)
@json_option
def explain(target: Target, id: int, as_json: bool) -> None:
    """Explain why the run or job ID does not run, and how to fix it.

    For a job that waits for other jobs, the cause that blocks them is shown first. Exit code 1 if it
    cannot continue without an action; 0 if it runs, has ended, or continues by itself.
    """
    from rota.operations.runs import explain_run

    def show(document: Explanation, now: datetime) -> None:
        print_explanation(document)

    found = list_command(target, explain_run, show, as_json=as_json, run=id)
    if found.status == "stuck":
        exit_with(FAILED)


def print_explanation(explanation: Explanation) -> None:
    title = (
        f"run {explanation.id}"
        if explanation.is_flow or explanation.id == explanation.run
        else f"job {explanation.id} of run {explanation.run}"
    )
    name = f" ({explanation.name})" if explanation.name else ""
    output.console().print(
        output.cell(f"{title}{name}", "bold"),
        output.cell(explanation.status, STATUS_STYLES[explanation.status]),
        end="\n\n",
    )
    output.print_renderable(output.property_table(explanation_properties(explanation)))
    if explanation.omitted_jobs:
        output.print_text(
            f"\n{output.format_count(explanation.omitted_jobs)} more jobs were not checked", "dim"
        )


def explanation_properties(explanation: Explanation) -> list[tuple[str, str]]:
    """Return reasons and remedies as pairs of a title and a text."""
    first, *others = explanation.reasons
    pairs = [("reason", _reason_text(first, explanation.now))]
    if first.remedy:
        pairs.append(("remedy", first.remedy))
    for each in others:
        pairs.append(("", ""))
        pairs.append(
            (
                "possible reason" if not each.is_certain else "also",
                _reason_text(each, explanation.now),
            )
        )
        if each.remedy and each.remedy != first.remedy:
            pairs.append(("remedy", each.remedy))
    return pairs


def _reason_text(reason: ExplanationReason, now: datetime) -> str:
    words = reason.message
    if reason.jobs > 1:
        more = (
            "1 more job"
            if reason.jobs == 2
            else f"{output.format_count(reason.jobs - 1)} more jobs"
        )
        words += f" (and {more} likewise)"
    if reason.until is not None:
        remaining = (reason.until - now).total_seconds()
        due = f"in {output.format_duration(remaining)}" if remaining > 0 else "which has come"
        words += f"; until {output.format_time(reason.until)}, {due}"
    elif reason.since is not None:
        words += f"; for {output.format_age(reason.since, now)}"
    return f"{words}: {single_line(reason.detail)}" if reason.detail else words
