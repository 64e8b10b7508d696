"""A graph as lines of text: one job a line, and to its left a rail for each job others still wait for.

    ● extract
    ├─● clean
    ╰─│─● enrich        passes the rail of `clean` without touching it
    ●─┴─╯ load          waits for both
    ├──● tell           nobody waits for it: it stands beside the columns
    ╰──● archive

A drawing says exactly its graph. A job in a column has the rail above it for a parent and hands the
column on to its children, so two jobs are never in line unless one waits for the other; what nobody waits
for stands half a column aside, or its column rests for a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.drawing.layout import components
from rota.model.graph import Graph

NODE = "●"
"""Stands where the job is; who prints the line puts in what its state looks like."""


@dataclass(frozen=True, slots=True)
class RailRow:
    name: str
    rails: str
    is_first: bool
    """Begins a part of the graph that has nothing to do with the one before."""


def text_rails(graph: Graph, max_width: int, *, compact: bool = False) -> list[RailRow] | None:
    """The lines, in an order that closes rails soon; None if they would take more than `widest`
    characters. `tight`: the last child of several goes on in its parent's column, too."""
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
    """The rails that are open, and what one more job makes of them."""

    def __init__(self, graph: Graph, compact: bool) -> None:
        self._graph, self._compact = graph, compact
        self._owners: list[str | None] = []  # a column each
        self._columns: dict[str, int] = {}
        self._open_successors: dict[str, int] = {}  # children still to come
        self._closed_column = -1  # a column whose last job nobody waits for

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
        """Where in the line the job goes: columns are every second character."""
        joins_several = len(joined) > 1
        if ended and (joins_several or self._compact or self._has_one_successor(ended[0])):
            column = ended[0]
            while joins_several and column and self._is_free(column - 1):
                column -= 1
            return 2 * column
        column = joined[0] + 1 if joined else 0
        if successors or not joined:
            while not self._is_free(column):
                column += 1
            return 2 * column
        while not (self._is_free(column) and self._is_free(column + 1)):
            column += 1
        return 2 * column + 1

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
