"""Dependency graph of named nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rota.errors import DefinitionError


@dataclass(frozen=True)
class Graph:
    """Nodes with their predecessors. Acyclic: construction computes `order` and raises DefinitionError for
    a cycle."""

    predecessors: Mapping[str, Sequence[str]]
    order: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _topological_order(self.predecessors))

    @cached_property
    def successors(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.order}
        for name in self.order:
            for predecessor in self.predecessors[name]:
                found[predecessor].append(name)
        return found

    @cached_property
    def depth(self) -> dict[str, int]:
        """Length of the longest path from a root to each node."""
        found: dict[str, int] = {}
        for name in self.order:
            found[name] = max(
                (found[predecessor] + 1 for predecessor in self.predecessors[name]), default=0
            )
        return found

    @property
    def roots(self) -> list[str]:
        return [name for name in self.order if not self.predecessors[name]]

    @property
    def sinks(self) -> list[str]:
        return [name for name in self.order if not self.successors[name]]


def _topological_order(predecessors: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return each node after its predecessors, otherwise in the given order. Iterative, since chains may be
    long."""
    order: list[str] = []
    done: set[str] = set()
    for start in predecessors:
        if start in done:
            continue
        path: dict[str, int] = {start: 0}  # current path, with the next index of each node
        while path:
            name, index = next(reversed(path.items()))
            if index == len(predecessors[name]):
                del path[name]
                done.add(name)
                order.append(name)
                continue
            path[name] = index + 1
            predecessor = predecessors[name][index]
            if predecessor in path:
                chain = list(path)
                cycle = chain[chain.index(predecessor) :]
                raise DefinitionError(
                    f"{' waits for '.join([*cycle, predecessor])}: none of them could ever start; take one "
                    "of these out"
                )
            if predecessor not in done:
                path[predecessor] = 0
    return tuple(order)
