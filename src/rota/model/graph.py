"""Who waits for whom: a graph of names, and what can be said of it without running anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rota.errors import DefinitionError


@dataclass(frozen=True)
class Graph:
    """Names and the names each of them waits for. Has no cycle: `order` was found when it was made."""

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
        """The longest way here from a beginning."""
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

    def reachable_from(self, names: Iterable[str]) -> set[str]:
        """These and everything that waits for them, however indirectly."""
        found = set(names)
        stack = list(found)
        while stack:
            for successor in self.successors[stack.pop()]:
                if successor not in found:
                    found.add(successor)
                    stack.append(successor)
        return found


def _topological_order(predecessors: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Each name after all it waits for; else in the order given. Iterative: a chain may be long."""
    order: list[str] = []
    done: set[str] = set()
    for start in predecessors:
        if start in done:
            continue
        path: dict[str, int] = {start: 0}  # the names on the way here, and which parent comes next
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
