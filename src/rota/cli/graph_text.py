"""Drawing of a graph as text: one line for each job, below its predecessors, connected by rails.

No line is longer than the terminal is wide. If the rails would take half of the width, the jobs become
an indented list that names the predecessors of each. Similar jobs beyond a few share one line. A
terminal without Unicode gets the same in ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rota.cli import output
from rota.drawing.collapse import MAX_SIMILAR, CollapsedGraph, collapse
from rota.drawing.label import EMPTY_LABEL, NodeLabel
from rota.drawing.text_rails import NODE, text_rails
from rota.model.graph import Graph
from rota.model.text import single_line

if TYPE_CHECKING:
    from rich.text import Text

STATE_MARKS = {
    "": NODE,
    "waiting": "○",
    "queued": "◎",
    "sleeping": "☾",
    "running": "◐",
    "succeeded": "✓",
    "failed": "✗",
    "quarantined": "⊠",
    "cancelled": "⊘",
    "expired": "◷",
    "skipped": "⊖",
    "many": "…",
}
ASCII_STATE_MARKS = {
    "": "*",
    "waiting": ".",
    "queued": "o",
    "sleeping": "z",
    "running": ">",
    "succeeded": "*",
    "failed": "x",
    "quarantined": "q",
    "cancelled": "/",
    "expired": "!",
    "skipped": "~",
    "many": ":",
}
TO_ASCII = str.maketrans(
    {**dict.fromkeys("├┤┼", "+"), **dict.fromkeys("╰╯┴", "'"), "│": "|", "─": "-"}
    | {"…": "...", "←": "<-"}
)
"""Rails that join become +, one that ends becomes ', and crossing rails become |."""

MAX_RAIL_COLUMNS = 60
"""Maximum width of the rails; wider ones cannot be followed by eye."""
MAX_NAMED_PREDECESSORS = 4
"""Predecessors named in the list form."""


def draw_graph(
    graph: Graph,
    labels: Mapping[str, NodeLabel] | None = None,
    *,
    width: int = 80,
    encoding: str = "utf-8",
    max_similar: int | None = MAX_SIMILAR,
) -> list[Text]:
    """Draw `graph` in lines of at most `width`.

    Of similar jobs, `max_similar` are shown; None shows all.
    """
    collapsed = (
        CollapsedGraph(graph, labels or {}, (), {})
        if max_similar is None
        else collapse(graph, labels, max_similar=max_similar)
    )
    canvas = _TextCanvas(collapsed.labels, width, encoding)
    rail_rows = text_rails(collapsed.graph, min(width // 3, MAX_RAIL_COLUMNS)) or text_rails(
        collapsed.graph, min(width // 2, MAX_RAIL_COLUMNS), compact=True
    )
    if rail_rows is None:
        return canvas.render(_list_rows(collapsed, width))
    rows: list[_Row | None] = []
    for rail_row in rail_rows:
        if rail_row.is_first and rows:
            rows.append(None)
        rows.append((rail_row.name, rail_row.rails, ""))
    return canvas.render(rows)


_Row = tuple[str, str, str]
"""Name of a job, the text before it and the text after it. None is an empty line."""


def _list_rows(collapsed: CollapsedGraph, width: int) -> list[_Row | None]:
    graph, rows = collapsed.graph, list[_Row | None]()
    for name in graph.order:
        predecessors = list(dict.fromkeys(graph.predecessors[name]))
        named = [
            _name(predecessor, collapsed.labels)
            for predecessor in predecessors[:MAX_NAMED_PREDECESSORS]
        ]
        if len(predecessors) > MAX_NAMED_PREDECESSORS:
            named.append(f"{len(predecessors) - MAX_NAMED_PREDECESSORS:,} more")
        indent = " " * min(2 * graph.depth[name], width // 4)
        rows.append((name, indent + NODE, f"← {', '.join(named)}" if named else ""))
    return rows


def _name(name: str, labels: Mapping[str, NodeLabel]) -> str:
    return labels.get(name, EMPTY_LABEL).name or name


class _TextCanvas:
    """Renderer for the width and encoding of one terminal."""

    def __init__(self, labels: Mapping[str, NodeLabel], width: int, encoding: str) -> None:
        self._labels, self._width, self._encoding = labels, width, encoding
        self._is_ascii = not encoding.lower().startswith("utf")

    def render(self, rows: list[_Row | None]) -> list[Text]:
        """Return the lines, with the states aligned in a column as far right as most names need."""
        labels = [self._labels.get(row[0], EMPTY_LABEL) if row else EMPTY_LABEL for row in rows]
        leads = [self._lead(row, label) for row, label in zip(rows, labels, strict=True)]
        names = (lead.cell_len for lead, label in zip(leads, labels, strict=True) if label.state)
        column = min(max(names, default=0), self._width * 3 // 5)
        state_width = max((len(label.state) for label in labels), default=0)
        return [
            self._line(lead, label, column, state_width)
            for lead, label in zip(leads, labels, strict=True)
        ]

    def _line(self, lead: Text, label: NodeLabel, column: int, state_width: int) -> Text:
        from rich.text import Text

        line = Text(no_wrap=True).append_text(lead)
        if label.state:
            line.append(" " * (max(column - lead.cell_len, 0) + 2))
            line.append(self._encode_text(label.state).ljust(state_width), _style(label.state))
        if label.detail and label.job_count == 1:
            line.append(f"  {self._encode_text(label.detail)}", "dim")
        if label.error:
            line.append(f"  {self._encode_text(label.error)}", "red")
        line.rstrip()
        return self._clip(line)

    def _lead(self, row: _Row | None, label: NodeLabel) -> Text:
        from rich.text import Text

        if row is None:
            return Text()
        name, prefix, suffix = row
        known = label.known_state
        left, right = prefix.split(NODE)
        mark = (ASCII_STATE_MARKS if self._is_ascii else STATE_MARKS)[
            "many" if label.job_count > 1 else known
        ]
        lead = Text().append(self._encode_strokes(left), "dim")
        lead.append(mark, _style(known)).append(self._encode_strokes(right), "dim")
        words = label.name or name
        if label.job_count > 1 and label.detail:
            words += f": {label.detail}"
        is_dim = known in ("waiting", "skipped") or label.job_count > 1
        lead.append(f" {self._encode_text(words)}", "dim" if is_dim else "")
        if suffix:
            lead.append(f"  {self._encode_text(suffix)}", "dim")
        return lead

    def _encode_strokes(self, strokes: str) -> str:
        return strokes.translate(TO_ASCII) if self._is_ascii else strokes

    def _encode_text(self, text: str) -> str:
        line = single_line(text)
        if not self._is_ascii:
            return line
        return (
            line.translate(TO_ASCII)
            .encode(self._encoding, "backslashreplace")
            .decode(self._encoding)
        )

    def _clip(self, line: Text) -> Text:
        if line.cell_len <= self._width:
            return line
        if not self._is_ascii:
            line.truncate(self._width, overflow="ellipsis")
            return line
        line.truncate(max(self._width - 3, 0))
        return line.append("..."[: self._width])


def _style(state: str) -> str:
    return output.STATE_STYLES.get(state, "dim" if state else "")
