"""A graph as Mermaid text, for a page that draws it: a README, a wiki, a pull request.

Jobs are called n0, n1, … and their names are labels, written so that no character of a name means
anything to Mermaid. It refuses more than 500 edges unless told otherwise: `fold` wide graphs first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rota.drawing.label import BLANK, STATES, Edge, Label
from rota.drawing.layout import Direction
from rota.drawing.palette import DAY
from rota.model.graph import Graph

# Letters, digits and blanks mean nothing anywhere, nor do a few marks inside a word.
_MEANT = re.compile(
    r"[^\w ,:/.·…←→-]"  # brackets, quotes, entities, tags
    r"|(?<![^\W_])_|_(?![^\W_])"  # at the edge of a word: emphasis
    r"|^[-:]|^\d+[.]"  # at the beginning: a list
    r"|//"  # an address becomes a link
)


def mermaid(
    graph: Graph,
    labels: Mapping[str, Label] | None = None,
    *,
    after: Collection[Edge] = (),
    direction: Direction = "right",
) -> str:
    """`graph` as a flowchart. Edges in `after` carry order but no data, and are dashed."""
    labels = labels or {}
    loose = frozenset(after)
    number = {name: f"n{place}" for place, name in enumerate(graph.order)}
    lines = [f"flowchart {'LR' if direction == 'right' else 'TD'}"]
    for name in graph.order:
        label = labels.get(name, BLANK)
        words = "<br/>".join(map(_said, filter(None, (label.name or name, label.remark))))
        lines.append(f'    {number[name]}["{words}"]{f":::{label.known}" if label.known else ""}')
    for name in graph.order:
        for parent in dict.fromkeys(graph.parents[name]):
            arrow = "-.->" if (parent, name) in loose else "-->"
            lines.append(f"    {number[parent]} {arrow} {number[name]}")
    used = {labels[name].known for name in graph.order if name in labels}
    for state in STATES:
        if state in used:
            ink = DAY.states[state]
            lines.append(f"    classDef {state} fill:{ink.fill},stroke:{ink.line},color:{DAY.name}")
    return "\n".join(lines) + "\n"


def _said(words: str) -> str:
    """A label's text: one line, and what could mean something by its number."""
    line = " ".join(words.split()) or " "
    return _MEANT.sub(lambda found: "".join(map(_numbered, found[0])), line)


def _numbered(letter: str) -> str:
    return letter if letter.isalnum() else f"#{ord(letter)};"
