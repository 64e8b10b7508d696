"""`rota flows` and `rota graph`: flows as they are written, before anything of them runs.

Neither needs a database. A flow that cannot work is listed with the reason, and then the exit code is not
0: `rota flows` is a check for CI.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import rich_click as click

from rota.cli import paint
from rota.cli.endings import MISTAKE, Told
from rota.cli.target import with_app
from rota.cli.trellis import trellis
from rota.drawing import definition as drawn
from rota.drawing.fold import KEPT, Folded, fold
from rota.drawing.layout import Direction
from rota.drawing.mermaid import mermaid
from rota.drawing.svg import svg
from rota.errors import DefinitionError

if TYPE_CHECKING:
    from rich.text import Text

    from rota import Rota
    from rota.model.flow import FlowDefinition, Plan

Format = Literal["text", "svg", "mermaid"]

SUFFIXES: dict[str, Format] = {
    ".svg": "svg",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".md": "mermaid",
    ".txt": "text",
}


class Listed(msgspec.Struct, frozen=True):
    """A flow as it is listed; `plan` is None where it cannot work, and `error` says why."""

    name: str
    tasks: int
    plan: Plan | None
    error: str | None


@click.command()
@with_app
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def flows(app: Rota, name: str, as_json: bool) -> None:
    """List the flows of an app, and check them: exit code 2 if one cannot work."""
    found = [_checked(flow) for _, flow in sorted(app.registry.flows.items())]
    if as_json:
        paint.say_json([_document(each) for each in found])
    elif not found:
        click.echo(f'{name} has no flows; write one with app.flow("NAME")')
    else:
        _print_flows(found)
    wrong = [each.name for each in found if each.plan is None]
    if wrong:
        many = "1 flow" if len(wrong) == 1 else f"{len(wrong)} flows"
        raise Told(f"{many} of {name} cannot work: {', '.join(wrong)}", MISTAKE)


def _checked(flow: FlowDefinition) -> Listed:
    try:
        for node in flow.plan.nodes:
            # Made on first use, which would be on a worker: a type that cannot come out of JSON.
            for task in filter(None, (node.task, node.skip_if)):
                task.arguments, task.result  # noqa: B018
        return Listed(flow.name, len(flow.nodes), flow.plan, None)
    except DefinitionError as error:
        return Listed(flow.name, len(flow.nodes), None, str(error))


def _print_flows(found: list[Listed]) -> None:
    table = paint.table(
        "flow",
        "tasks",
        "longest way",
        "queues",
        "input",
        right=("tasks", "longest way"),
        free=("flow", "queues", "input"),
    )
    for each in found:
        if each.plan is None:
            words = paint.text(each.error, "red")
            words.no_wrap = False
            table.add_row(
                paint.text(each.name, "red"), paint.text(each.tasks), paint.text("-"), "-", words
            )
            continue
        words = paint.text(", ".join(map(str, drawn.flow_input(each.plan))) or "-")
        words.no_wrap = False
        table.add_row(
            paint.text(each.name),
            paint.text(each.tasks),
            paint.text(_longest(each.plan)),
            paint.text(", ".join(each.plan.queues)),
            words,
        )
    paint.show(table)


def _longest(plan: Plan) -> int:
    """Tasks one after another, where there are most."""
    return max(plan.graph.depth.values()) + 1


def _document(flow: Listed) -> dict[str, Any]:
    plan = flow.plan
    if plan is None:
        return {"name": flow.name, "error": flow.error}
    return {
        "name": flow.name,
        "error": None,
        "longest_way": _longest(plan),
        "queues": plan.queues,
        "input": {
            word.name: {"type": word.kind, "required": word.required}
            for word in drawn.flow_input(plan)
        },
        "tasks": [
            {
                "name": node.name,
                "task": node.task.name,
                "queue": node.task.policy.queue,
                "takes": list(plan.taken(node)),
                "after": drawn.only_before(plan, node),
                "when": node.when,
                "on_failure": node.last,
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
    "form",
    type=click.Choice(["text", "svg", "mermaid"]),
    help="Text for a terminal (the default), a picture, or what Markdown pages draw.",
)
@click.option("--svg", "form", flag_value="svg", help="The same as --format svg.")
@click.option("--mermaid", "form", flag_value="mermaid", help="The same as --format mermaid.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it there, in the format its name says: .svg, .mmd, .md or .txt.",
)
@click.option("--down", is_flag=True, help="From the top down, not from left to right.")
@click.option("--all", "whole", is_flag=True, help="Every task, also of many alike.")
def graph(
    app: Rota,
    name: str,
    flow: str,
    form: Format | None,
    output: Path | None,
    down: bool,
    whole: bool,
) -> None:
    """Draw FLOW as it is written: as text, as an SVG picture, or as Mermaid.

    In pictures, an edge that is dashed carries order and no result.
    """
    definition = find_flow(app, name, flow)
    plan = definition.plan
    kept = None if whole else KEPT
    if output is None and form in (None, "text"):
        console = paint.console()
        paint.lines(_text(plan, console.width, console.encoding, kept))
        return
    if output is None:
        click.echo(_picture(plan, form or "svg", down=down, kept=kept), nl=False)
        return
    suffix = output.suffix.lower()
    if form is None and suffix not in SUFFIXES:
        raise Told(
            f"{output.name!r} does not say what it is; call it something with "
            f"{', '.join(SUFFIXES)}, or say --format",
            MISTAKE,
        )
    form = form or SUFFIXES[suffix]
    if form == "text":
        lines = _text(plan, paint.UNCLIPPED, "utf-8", kept)
        drawn = "".join(f"{line.plain}\n" for line in lines)
    else:
        drawn = _picture(plan, form, down=down, kept=kept)
    if suffix == ".md":
        drawn = f"```{'mermaid' if form == 'mermaid' else ''}\n{drawn}```\n"
    try:
        output.write_text(drawn, "utf-8")
    except OSError as error:
        raise Told(f"cannot write {output}: {error.strerror}", MISTAKE) from None


def find_flow(app: Rota, name: str, flow: str) -> FlowDefinition:
    found = app.registry.flows.get(flow)
    if found is None:
        names = sorted(app.registry.flows)
        near = difflib.get_close_matches(flow, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(names) or 'none'}"
        raise Told(f"{name} has no flow {flow!r}; {hint}", MISTAKE)
    return found


def _text(plan: Plan, width: int, encoding: str, kept: int | None) -> list[Text]:
    labels = {node.name: drawn.label(plan, node, text=True) for node in plan.nodes}
    return trellis(plan.graph, labels, width=width, encoding=encoding, kept=kept)


def _picture(plan: Plan, form: Format, *, down: bool, kept: int | None) -> str:
    labels = {node.name: drawn.label(plan, node) for node in plan.nodes}
    after = drawn.order_only(plan)
    shown = Folded(plan.graph, labels, after, {})
    if kept is not None:
        shown = fold(plan.graph, labels, after=after, kept=kept)
    direction: Direction = "down" if down else "right"
    if form == "mermaid":
        return mermaid(shown.graph, shown.labels, after=shown.after, direction=direction)
    title = plan.name
    return svg(shown.graph, shown.labels, after=shown.after, direction=direction, title=title)
