"""A graph on a terminal: a line a job, under what it waits for, with rails that show for whom.

No line is longer than the terminal is wide. Where the rails would take half of it the jobs become a list,
indented by depth, that names what each waits for. Jobs alike beyond a few share one line. A terminal that
does not speak Unicode gets the same in ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rota.cli import paint
from rota.drawing.fold import KEPT, Folded, fold
from rota.drawing.label import BLANK, Label
from rota.drawing.rails import NODE, rails
from rota.model.graph import Graph

if TYPE_CHECKING:
    from rich.text import Text

MARKS = {
    "": NODE,
    "waiting": "○",
    "ready": "◎",
    "asleep": "☾",
    "running": "◐",
    "succeeded": "✓",
    "failed": "✗",
    "quarantined": "⊠",
    "cancelled": "⊘",
    "expired": "◷",
    "skipped": "⊖",
    "many": "…",
}
PLAIN_MARKS = {
    "": "*",
    "waiting": ".",
    "ready": "o",
    "asleep": "z",
    "running": ">",
    "succeeded": "*",
    "failed": "x",
    "quarantined": "q",
    "cancelled": "/",
    "expired": "!",
    "skipped": "~",
    "many": ":",
}
PLAIN = str.maketrans(
    {**dict.fromkeys("├┤┼", "+"), **dict.fromkeys("╰╯┴", "'"), "│": "|", "─": "-"}
    | {"…": "...", "←": "<-"}
)
"""Where rails meet it is +, where one ends there it is ', and where they only cross it is |."""

WIDEST = 60
"""Characters of rails; nobody's eye follows more."""
NAMED = 4
"""Parents named in a list."""


def trellis(
    graph: Graph,
    labels: Mapping[str, Label] | None = None,
    *,
    width: int = 80,
    encoding: str = "utf-8",
    kept: int | None = KEPT,
) -> list[Text]:
    """Draw `graph` in lines of at most `width`. `kept`: how many of those alike are shown; None: all."""
    folded = Folded(graph, labels or {}, (), {}) if kept is None else fold(graph, labels, kept=kept)
    page = _Page(folded.labels, width, encoding)
    drawing = rails(folded.graph, min(width // 3, WIDEST)) or rails(
        folded.graph, min(width // 2, WIDEST), tight=True
    )
    if drawing is None:
        return page.lines(_listed(folded, width))
    rows: list[_Row | None] = []
    for rung in drawing:
        if rung.first and rows:
            rows.append(None)
        rows.append((rung.name, rung.rails, ""))
    return page.lines(rows)


_Row = tuple[str, str, str]
"""A job, what is drawn before its name, and what is said behind it. None is an empty line."""


def _listed(folded: Folded, width: int) -> list[_Row | None]:
    graph, rows = folded.graph, list[_Row | None]()
    for name in graph.order:
        parents = list(dict.fromkeys(graph.parents[name]))
        named = [_name(parent, folded.labels) for parent in parents[:NAMED]]
        if len(parents) > NAMED:
            named.append(f"{len(parents) - NAMED:,} more")
        indent = " " * min(2 * graph.depth[name], width // 4)
        rows.append((name, indent + NODE, f"← {', '.join(named)}" if named else ""))
    return rows


def _name(name: str, labels: Mapping[str, Label]) -> str:
    return labels.get(name, BLANK).name or name


class _Page:
    """Lines for one terminal: what it can show, and how much of it."""

    def __init__(self, labels: Mapping[str, Label], width: int, encoding: str) -> None:
        self._labels, self._width, self._encoding = labels, width, encoding
        self._plain = not encoding.lower().startswith("utf")

    def lines(self, rows: list[_Row | None]) -> list[Text]:
        """The states stand under each other, as far right as most names need."""
        from rich.text import Text

        labels = [self._labels.get(row[0], BLANK) if row else BLANK for row in rows]
        leads = [self._lead(row, label) for row, label in zip(rows, labels, strict=True)]
        names = (lead.cell_len for lead, label in zip(leads, labels, strict=True) if label.state)
        column = min(max(names, default=0), self._width * 3 // 5)
        states = max((len(label.state) for label in labels), default=0)
        made: list[Text] = []
        for lead, label in zip(leads, labels, strict=True):
            line = Text(no_wrap=True).append_text(lead)
            if label.state:
                line.append(" " * (column - lead.cell_len + 2 if lead.cell_len < column else 2))
                line.append(self._said(label.state).ljust(states), _style(label.state))
            if label.detail and label.many == 1:
                line.append(f"  {self._said(label.detail)}", "dim")
            if label.error:
                line.append(f"  {self._said(label.error)}", "red")
            line.rstrip()
            made.append(self._clipped(line))
        return made

    def _lead(self, row: _Row | None, label: Label) -> Text:
        from rich.text import Text

        if row is None:
            return Text()
        name, before, behind = row
        known = label.known
        left, right = before.split(NODE)
        mark = (PLAIN_MARKS if self._plain else MARKS)["many" if label.many > 1 else known]
        lead = Text().append(self._drawn(left), "dim")
        lead.append(mark, _style(known)).append(self._drawn(right), "dim")
        words = label.name or name
        if label.many > 1 and label.detail:
            words += f": {label.detail}"
        quiet = known in ("waiting", "skipped") or label.many > 1
        lead.append(f" {self._said(words)}", "dim" if quiet else "")
        if behind:
            lead.append(f"  {self._said(behind)}", "dim")
        return lead

    def _drawn(self, strokes: str) -> str:
        return strokes.translate(PLAIN) if self._plain else strokes

    def _said(self, words: str) -> str:
        line = paint.line(words)
        if not self._plain:
            return line
        return (
            line.translate(PLAIN).encode(self._encoding, "backslashreplace").decode(self._encoding)
        )

    def _clipped(self, line: Text) -> Text:
        if line.cell_len <= self._width:
            return line
        if not self._plain:
            line.truncate(self._width, overflow="ellipsis")
            return line
        line.truncate(max(self._width - 3, 0))
        return line.append("..."[: self._width])


def _style(state: str) -> str:
    return paint.STATES.get(state, "dim" if state else "")
