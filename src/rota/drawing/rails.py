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

from rota.drawing.layers import parts
from rota.model.graph import Graph

NODE = "●"
"""Stands where the job is; who prints the line puts in what its state looks like."""


@dataclass(frozen=True, slots=True)
class Rung:
    name: str
    rails: str
    first: bool
    """Begins a part of the graph that has nothing to do with the one before."""


def rails(graph: Graph, widest: int, *, tight: bool = False) -> list[Rung] | None:
    """The lines, in an order that closes rails soon; None if they would take more than `widest`
    characters. `tight`: the last child of several goes on in its parent's column, too."""
    rungs: list[Rung] = []
    for part in parts(graph):
        trellis = _Trellis(graph, tight)
        for number, name in enumerate(_depth_first(graph, part)):
            line = trellis.add(name)
            if len(line) > widest:
                return None
            rungs.append(Rung(name, line, first=number == 0))
    return rungs


def _depth_first(graph: Graph, part: Sequence[str]) -> Iterator[str]:
    missing = {name: len(set(graph.parents[name])) for name in part}
    pile = [name for name in reversed(part) if not missing[name]]
    while pile:
        name = pile.pop()
        yield name
        for child in reversed(dict.fromkeys(graph.children[name])):
            missing[child] -= 1
            if not missing[child]:
                pile.append(child)


class _Trellis:
    """The rails that are open, and what one more job makes of them."""

    def __init__(self, graph: Graph, tight: bool) -> None:
        self._graph, self._tight = graph, tight
        self._owners: list[str | None] = []  # a column each
        self._columns: dict[str, int] = {}
        self._waiting: dict[str, int] = {}  # children still to come
        self._resting = -1  # a column whose last job nobody waits for

    def add(self, name: str) -> str:
        parents = list(dict.fromkeys(self._graph.parents[name]))
        children = len(set(self._graph.children[name]))
        joined = sorted(self._columns[parent] for parent in parents)
        for parent in parents:
            self._waiting[parent] -= 1
        ended = [column for column in joined if not self._waiting[self._owner(column)]]
        at = self._place(joined, ended, children)
        line = self._drawn(at, joined, ended)

        for column in ended:
            del self._columns[self._owner(column)]
            self._owners[column] = None
        if children:
            self._owners += [None] * (at // 2 + 1 - len(self._owners))
            self._owners[at // 2] = name
            self._columns[name], self._waiting[name] = at // 2, children
        self._resting = -1 if children or at % 2 else at // 2
        while self._owners and self._owners[-1] is None:
            self._owners.pop()
        return line

    def _owner(self, column: int) -> str:
        owner = self._owners[column]
        assert owner is not None, "a parent with children to come has a rail"
        return owner

    def _free(self, column: int) -> bool:
        open_here = column < len(self._owners) and self._owners[column] is not None
        return not open_here and column != self._resting

    def _place(self, joined: list[int], ended: list[int], children: int) -> int:
        """Where in the line the job goes: columns are every second character."""
        several = len(joined) > 1
        if ended and (several or self._tight or self._only_child(ended[0])):
            column = ended[0]
            while several and column and self._free(column - 1):
                column -= 1
            return 2 * column
        column = joined[0] + 1 if joined else 0
        if children or not joined:
            while not self._free(column):
                column += 1
            return 2 * column
        while not (self._free(column) and self._free(column + 1)):
            column += 1
        return 2 * column + 1

    def _only_child(self, column: int) -> bool:
        return len(set(self._graph.children[self._owner(column)])) == 1

    def _drawn(self, at: int, joined: list[int], ended: list[int]) -> str:
        left = min([at, *(2 * column for column in joined)])
        right = max([at, *(2 * column for column in joined)])
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
        line[at] = NODE
        return "".join(line).rstrip()
