"""Graph as Mermaid text, for a README, a wiki or a pull request.

Jobs are called n0, n1, …; their names are labels, escaped so that no character has a meaning in Mermaid. By
default Mermaid refuses more than 500 edges: `collapse` wide graphs first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rota.drawing.label import EMPTY_LABEL, STATES, Edge, NodeLabel
from rota.drawing.layout import Direction
from rota.drawing.palette import LIGHT
from rota.model.graph import Graph

# Letters, digits and spaces are always safe, and some punctuation is safe inside a word.
_SPECIAL_CHARACTERS = re.compile(
    r"[^\w ,:/.·…←→-]"  # brackets, quotes, entities, tags
    r"|(?<![^\W_])_|_(?![^\W_])"  # at the edge of a word: emphasis
    r"|^[-:]|^\d+[.]"  # at the beginning: a list
    r"|//"  # an address becomes a link
)


def mermaid(
    graph: Graph,
    labels: Mapping[str, NodeLabel] | None = None,
    *,
    after: Collection[Edge] = (),
    direction: Direction = "right",
) -> str:
    """Return `graph` as a flowchart. Edges in `after` carry order but no data, and are dashed."""
    labels = labels or {}
    order_only = frozenset(after)
    node_ids = {name: f"n{index}" for index, name in enumerate(graph.order)}
    lines = [f"flowchart {'LR' if direction == 'right' else 'TD'}"]
    for name in graph.order:
        lines.append(f"    {node_ids[name]}{_node(name, labels.get(name, EMPTY_LABEL))}")
    for name in graph.order:
        for predecessor in dict.fromkeys(graph.predecessors[name]):
            arrow = "-.->" if (predecessor, name) in order_only else "-->"
            lines.append(f"    {node_ids[predecessor]} {arrow} {node_ids[name]}")
    used = {labels[name].known_state for name in graph.order if name in labels}
    for state in STATES:
        if state in used:
            colors = LIGHT.states[state]
            lines.append(
                f"    classDef {state} fill:{colors.fill},stroke:{colors.stroke},color:{LIGHT.text}"
            )
    return "\n".join(lines) + "\n"


def _node(name: str, label: NodeLabel) -> str:
    """Return the text and the class of a node."""
    text = "<br/>".join(map(_escape, filter(None, (label.name or name, label.remark))))
    return f'["{text}"]' + (f":::{label.known_state}" if label.known_state else "")


def _escape(text: str) -> str:
    """Return a label's text in one line, with special characters as character references."""
    line = " ".join(text.split()) or " "
    return _SPECIAL_CHARACTERS.sub(lambda found: "".join(map(_escape_letter, found[0])), line)


def _escape_letter(letter: str) -> str:
    return letter if letter.isalnum() else f"#{ord(letter)};"
