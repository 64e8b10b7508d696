"""`rota flows` and `rota graph`: the flows that an app defines.

Neither needs a database. An invalid flow is listed with the reason, and the exit code is not 0: `rota
flows` is a check for CI.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import rich_click as click

from rota.cli import output
from rota.cli.exit_codes import USAGE_ERROR, CommandError
from rota.cli.graph_text import draw_graph
from rota.cli.table import Column, Table
from rota.cli.target import with_app
from rota.drawing import flow_inputs as drawn
from rota.drawing.collapse import MAX_SIMILAR, CollapsedGraph, collapse
from rota.drawing.layout import Direction
from rota.drawing.mermaid import mermaid
from rota.drawing.svg import svg
from rota.errors import DefinitionError
from rota.model.text import counted, suggest_name

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.model.flow import FlowDefinition, FlowPlan

Format = Literal["text", "svg", "mermaid"]

SUFFIXES: dict[str, Format] = {
    ".svg": "svg",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".md": "mermaid",
    ".txt": "text",
}


class ListedFlow(msgspec.Struct, frozen=True):
    """Flow of the list; `plan` is None if it is invalid, with the reason in `error`."""

    name: str
    tasks: int
    plan: FlowPlan | None
    error: str | None


@click.command()
@with_app
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def flows(app: Rota, name: str, as_json: bool) -> None:
    """List the flows of an app and validate them. Exit code 2 if one is invalid."""
    found = [_check_flow(flow) for _, flow in sorted(app.registry.flows.items())]
    if as_json:
        output.print_json([_document(each) for each in found])
    elif not found:
        click.echo(f'{name} has no flows; write one with app.flow("NAME")')
    else:
        FLOWS.print(found, datetime.now(UTC))
    invalid = [each.name for each in found if each.plan is None]
    if invalid:
        flows = counted(len(invalid), "flow")
        raise CommandError(f"{flows} of {name} cannot work: {', '.join(invalid)}", USAGE_ERROR)


def _check_flow(flow: FlowDefinition) -> ListedFlow:
    try:
        for node in flow.plan.nodes:
            # Decoders are created on first use, by a worker: create them now to find types without
            # a JSON form.
            for task in filter(None, (node.task, node.skip_if)):
                task.arguments_decoder, task.result_decoder  # noqa: B018
        return ListedFlow(flow.name, len(flow.nodes), flow.plan, None)
    except DefinitionError as error:
        return ListedFlow(flow.name, len(flow.nodes), None, str(error))


FLOWS = Table[ListedFlow](
    Column("flow", lambda row, now: row.name, lambda row: "" if row.plan else "red", shrinks=True),
    Column("tasks", lambda row, now: row.tasks, right=True),
    Column(
        "longest path", lambda row, now: _longest_path(row.plan) if row.plan else "-", right=True
    ),
    Column(
        "queues", lambda row, now: ", ".join(row.plan.queues) if row.plan else "-", shrinks=True
    ),
    Column(
        "input", lambda row, now: _input(row), lambda row: "" if row.plan else "red", wraps=True
    ),
)


def _input(flow: ListedFlow) -> str | None:
    if flow.plan is None:
        return flow.error
    return ", ".join(map(str, drawn.flow_inputs(flow.plan))) or "-"


def _longest_path(plan: FlowPlan) -> int:
    """Return the number of tasks on the longest path."""
    return max(plan.graph.depth.values()) + 1


def _document(flow: ListedFlow) -> dict[str, Any]:
    plan = flow.plan
    if plan is None:
        return {"name": flow.name, "error": flow.error}
    return {
        "name": flow.name,
        "error": None,
        "longest_path": _longest_path(plan),
        "queues": plan.queues,
        "input": {
            entry.name: {"type": entry.kind, "required": entry.required}
            for entry in drawn.flow_inputs(plan)
        },
        "tasks": [
            {
                "name": node.name,
                "task": node.task.name,
                "queue": node.task.policy.queue,
                "inputs": list(plan.result_parameters(node)),
                "after": drawn.order_only_predecessors(plan, node),
                "when": node.when,
                "on_failure": node.is_on_failure,
                "skip_if": node.skip_if is not None,
            }
            for node in plan.nodes
        ],
    }


@click.command()
@with_app
@click.argument("flow")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "svg", "mermaid"]),
    help="Output format: text for a terminal (the default), an SVG picture, or Mermaid.",
)
@click.option("--svg", "output_format", flag_value="svg", help="The same as --format svg.")
@click.option(
    "--mermaid", "output_format", flag_value="mermaid", help="The same as --format mermaid."
)
@click.option(
    "-o",
    "--output",
    "output_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE; its suffix selects the format: .svg, .mmd, .md or .txt.",
)
@click.option("--down", is_flag=True, help="Draw from the top down, not from left to right.")
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Show every task, also those of a large group of similar ones.",
)
def graph(
    app: Rota,
    name: str,
    flow: str,
    output_format: Format | None,
    output_file: Path | None,
    down: bool,
    show_all: bool,
) -> None:
    """Draw FLOW as text, as an SVG picture, or as Mermaid.

    In pictures, a dashed edge carries order but no result.
    """
    definition = find_flow(app, name, flow)
    plan = definition.plan
    max_similar = None if show_all else MAX_SIMILAR
    if output_file is None and output_format in (None, "text"):
        console = output.console()
        output.print_lines(_render_text(plan, console.width, console.encoding, max_similar))
        return
    if output_file is None:
        click.echo(
            _render_picture(plan, output_format or "svg", down=down, max_similar=max_similar),
            nl=False,
        )
        return
    _write_file(plan, output_file, output_format, down=down, max_similar=max_similar)


def _write_file(
    plan: FlowPlan,
    output_file: Path,
    output_format: Format | None,
    *,
    down: bool,
    max_similar: int | None,
) -> None:
    suffix = output_file.suffix.lower()
    if output_format is None and suffix not in SUFFIXES:
        raise CommandError(
            f"{output_file.name!r} has no known suffix; use one of {', '.join(SUFFIXES)}, or set --format",
            USAGE_ERROR,
        )
    output_format = output_format or SUFFIXES[suffix]
    if output_format == "text":
        lines = _render_text(plan, output.PIPE_COLUMNS, "utf-8", max_similar)
        content = "".join(f"{line.plain}\n" for line in lines)
    else:
        content = _render_picture(plan, output_format, down=down, max_similar=max_similar)
    if suffix == ".md":
        content = f"```{'mermaid' if output_format == 'mermaid' else ''}\n{content}```\n"
    try:
        output_file.write_text(content, "utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {output_file}: {error.strerror}", USAGE_ERROR) from None


def find_flow(app: Rota, name: str, flow: str) -> FlowDefinition:
    found = app.registry.flows.get(flow)
    if found is None:
        hint = suggest_name(flow, sorted(app.registry.flows))
        raise CommandError(f"{name} has no flow {flow!r}; {hint}", USAGE_ERROR)
    return found


def _render_text(plan: FlowPlan, width: int, encoding: str, max_similar: int | None) -> list[Text]:
    labels = {node.name: drawn.node_label(plan, node, text=True) for node in plan.nodes}
    return draw_graph(plan.graph, labels, width=width, encoding=encoding, max_similar=max_similar)


def _render_picture(
    plan: FlowPlan, output_format: Format, *, down: bool, max_similar: int | None
) -> str:
    labels = {node.name: drawn.node_label(plan, node) for node in plan.nodes}
    after = drawn.order_only_edges(plan)
    shown = CollapsedGraph(plan.graph, labels, after, {})
    if max_similar is not None:
        shown = collapse(plan.graph, labels, after=after, max_similar=max_similar)
    direction: Direction = "down" if down else "right"
    if output_format == "mermaid":
        return mermaid(shown.graph, shown.labels, after=shown.after, direction=direction)
    title = plan.name
    return svg(shown.graph, shown.labels, after=shown.after, direction=direction, title=title)
