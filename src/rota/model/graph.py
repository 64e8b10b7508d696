"""Who waits for whom: a graph of names, and what can be said of it without running anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rota.errors import DefinitionError


@dataclass(frozen=True)
class Graph:
    """Names and the names each of them waits for. Has no cycle: `order` was found when it was made."""

    parents: Mapping[str, Sequence[str]]
    order: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _ordered(self.parents))

    @cached_property
    def children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.order}
        for name in self.order:
            for parent in self.parents[name]:
                found[parent].append(name)
        return found

    @cached_property
    def depth(self) -> dict[str, int]:
        """The longest way here from a beginning."""
        found: dict[str, int] = {}
        for name in self.order:
            found[name] = max((found[parent] + 1 for parent in self.parents[name]), default=0)
        return found

    @property
    def roots(self) -> list[str]:
        return [name for name in self.order if not self.parents[name]]

    @property
    def sinks(self) -> list[str]:
        return [name for name in self.order if not self.children[name]]

    def after(self, names: Iterable[str]) -> set[str]:
        """These and everything that waits for them, however indirectly."""
        found = set(names)
        pile = list(found)
        while pile:
            for child in self.children[pile.pop()]:
                if child not in found:
                    found.add(child)
                    pile.append(child)
        return found


def _ordered(parents: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Each name after all it waits for; else in the order given. Iterative: a chain may be long."""
    order: list[str] = []
    done: set[str] = set()
    for start in parents:
        if start in done:
            continue
        path: dict[str, int] = {start: 0}  # the names on the way here, and which parent comes next
        while path:
            name, turn = next(reversed(path.items()))
            if turn == len(parents[name]):
                del path[name]
                done.add(name)
                order.append(name)
                continue
            path[name] = turn + 1
            parent = parents[name][turn]
            if parent in path:
                way = list(path)
                circle = way[way.index(parent) :]
                raise DefinitionError(
                    f"{' waits for '.join([*circle, parent])}: none of them could ever start; take one "
                    "of these out"
                )
            if parent not in done:
                path[parent] = 0
    return tuple(order)
