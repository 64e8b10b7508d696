"""Graph as lines of text: one job a line, with a rail to its left for each job that still has successors to
come.

    ● extract
    ├─● clean
    ╰─│─● enrich        passes the rail of `clean` without touching it
    ●─┴─╯ load          waits for both
    ├──● notify         has no successors: it is beside the columns
    ╰──● archive

A drawing is exact. A job in a column is a successor of the rail above it, and passes the column on to its
own successors. Two jobs are therefore in line only if one waits for the other. A job without successors is
half a column aside, or its column stays empty for a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.drawing.layout import components
from rota.model.graph import Graph

NODE = "●"
"""Placeholder of the job; the caller may replace it with a symbol of its state."""


@dataclass(frozen=True, slots=True)
class RailRow:
    name: str
    rails: str
    is_first: bool
    """True if the row begins a separate part of the graph."""


def text_rails(graph: Graph, max_width: int, *, compact: bool = False) -> list[RailRow] | None:
    """Return the rows, ordered to close rails early, or None if a row would exceed `max_width` characters.

    With `compact`, the last of several successors also continues in the column of its predecessor.
    """
    rows: list[RailRow] = []
    for component in components(graph):
        open_rails = _OpenRails(graph, compact)
        for index, name in enumerate(_depth_first(graph, component)):
            line = open_rails.add(name)
            if len(line) > max_width:
                return None
            rows.append(RailRow(name, line, is_first=index == 0))
    return rows


def _depth_first(graph: Graph, component: Sequence[str]) -> Iterator[str]:
    pending = {name: len(set(graph.predecessors[name])) for name in component}
    stack = [name for name in reversed(component) if not pending[name]]
    while stack:
        name = stack.pop()
        yield name
        for successor in reversed(dict.fromkeys(graph.successors[name])):
            pending[successor] -= 1
            if not pending[successor]:
                stack.append(successor)


class _OpenRails:
    """Open rails, to which jobs are added one by one."""

    def __init__(self, graph: Graph, compact: bool) -> None:
        self._graph, self._compact = graph, compact
        self._owners: list[str | None] = []  # one for each column
        self._columns: dict[str, int] = {}
        self._open_successors: dict[str, int] = {}  # successors still to come
        self._closed_column = -1  # a column whose last job has no successors

    def add(self, name: str) -> str:
        predecessors = list(dict.fromkeys(self._graph.predecessors[name]))
        successors = len(set(self._graph.successors[name]))
        joined = sorted(self._columns[predecessor] for predecessor in predecessors)
        for predecessor in predecessors:
            self._open_successors[predecessor] -= 1
        ended = [column for column in joined if not self._open_successors[self._owner(column)]]
        position = self._choose_position(joined, ended, successors)
        line = self._draw_line(position, joined, ended)

        for column in ended:
            del self._columns[self._owner(column)]
            self._owners[column] = None
        if successors:
            self._owners += [None] * (position // 2 + 1 - len(self._owners))
            self._owners[position // 2] = name
            self._columns[name], self._open_successors[name] = position // 2, successors
        self._closed_column = -1 if successors or position % 2 else position // 2
        while self._owners and self._owners[-1] is None:
            self._owners.pop()
        return line

    def _owner(self, column: int) -> str:
        owner = self._owners[column]
        assert owner is not None, "a parent with children to come has a rail"
        return owner

    def _is_free(self, column: int) -> bool:
        is_open = column < len(self._owners) and self._owners[column] is not None
        return not is_open and column != self._closed_column

    def _choose_position(self, joined: list[int], ended: list[int], successors: int) -> int:
        """Return the position of the job in the line; columns are every second character."""
        joins_several = len(joined) > 1
        if ended and (joins_several or self._compact or self._has_one_successor(ended[0])):
            column = ended[0]
            while joins_several and column and self._is_free(column - 1):
                column -= 1
            return 2 * column
        column = joined[0] + 1 if joined else 0
        if successors or not joined:
            return 2 * self._first_free(column, 1)
        return 2 * self._first_free(column, 2) + 1

    def _first_free(self, column: int, count: int) -> int:
        """Return the first of `count` adjacent free columns, from `column` on."""
        while not all(self._is_free(column + offset) for offset in range(count)):
            column += 1
        return column

    def _has_one_successor(self, column: int) -> bool:
        return len(set(self._graph.successors[self._owner(column)])) == 1

    def _draw_line(self, position: int, joined: list[int], ended: list[int]) -> str:
        left = min([position, *(2 * column for column in joined)])
        right = max([position, *(2 * column for column in joined)])
        line = [" "] * max(right + 1, 2 * len(self._owners) - 1)
        line[left : right + 1] = "─" * (right + 1 - left)
        for column, owner in enumerate(self._owners):
            place = 2 * column
            if owner is None:
                continue
            if column not in joined:
                line[place] = "│"
            elif column in ended:
                line[place] = "╰" if place == left else "╯" if place == right else "┴"
            else:
                line[place] = "├" if place == left else "┤" if place == right else "┼"
        line[position] = NODE
        return "".join(line).rstrip()
