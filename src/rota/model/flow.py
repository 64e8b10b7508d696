"""A flow: tasks that wait for each other, checked as a whole before anything of it is started.

A parameter with the name of another task waits for that task and is given its result; every other one
comes from the run's input.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import msgspec

from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.fits import fits, said, takes_none
from rota.model.graph import Graph
from rota.model.task import Definition, check_name

LARGEST = 10_000
"""Jobs in one run."""

When = Literal["all_succeeded", "none_failed", "all_done", "any_failed"]


@dataclass(frozen=True)
class Node:
    """One task of a flow. `task` is registered under the flow's name and its own: etl.extract."""

    name: str
    task: Definition
    after: tuple[str, ...] = ()
    when: When = "all_succeeded"
    skip_if: Definition | None = None
    last: bool = False
    """Whether it waits for all that nothing else waits for: the flow's on_failure."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DefinitionError(
                f"{self.name!r} cannot be a flow's task: others name it as a parameter, so it must be a "
                "Python name"
            )
        if self.when not in get_args(When):
            raise DefinitionError(
                f"task {self.name!r}: when is one of {', '.join(get_args(When))}, not {self.when!r}"
            )

    @property
    def takers(self) -> list[Definition]:
        return [self.task] if self.skip_if is None else [self.task, self.skip_if]

    @cached_property
    def words(self) -> dict[str, list[Definition]]:
        """What it takes, and what its condition takes: which of the two."""
        found: dict[str, list[Definition]] = {}
        for taker in self.takers:
            for word in taker.parameters:
                found.setdefault(word, []).append(taker)
        return found


class FlowDefinition:
    """What a flow is, apart from any app."""

    def __init__(self, name: str) -> None:
        self.name = check_name("flow", name)
        self._nodes: dict[str, Node] = {}
        self._plan: Plan | None = None

    def add(self, node: Node) -> None:
        if node.name in self._nodes:
            raise DefinitionError(
                f"flow {self.name!r} has a task called {node.name!r} already; give one of them name=…"
            )
        if node.last and any(each.last for each in self._nodes.values()):
            raise DefinitionError(f"flow {self.name!r} has an on_failure task already")
        if len(self._nodes) == LARGEST:
            raise DefinitionError(
                f"flow {self.name!r} would have more than {LARGEST:,} tasks; split it, or fan out with "
                "ctx.map from one of them"
            )
        self._nodes[node.name] = node
        self._plan = None

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    @property
    def plan(self) -> Plan:
        """The whole, checked. Made when the flow is first used: tasks may be added until then."""
        if self._plan is None:
            self._plan = Plan(self.name, self._nodes)
        return self._plan


class Plan:
    """The jobs a run of a flow consists of, in an order in which each comes after those it waits for."""

    def __init__(self, name: str, nodes: Mapping[str, Node]) -> None:
        if not nodes:
            raise DefinitionError(
                f"flow {name!r} has no tasks; write some with @{name}.task before it is used"
            )
        self.name = name
        self._all = nodes
        parents = {each.name: self._parents(each) for each in nodes.values() if not each.last}
        self.sinks = frozenset(Graph(parents).sinks)
        # Where a failure could come to its end unseen: at the last tasks, and before those that run in
        # spite of it or because of it.
        ends = {*self.sinks}
        for name in parents:
            if nodes[name].when in ("all_done", "any_failed"):
                ends.update(parents[name])
        for each in nodes.values():
            if each.last:
                parents[each.name] = [
                    *dict.fromkeys(
                        [*self._parents(each), *(name for name in nodes if name in ends)]
                    )
                ]
        self.graph = Graph(parents)
        self.nodes = [nodes[each] for each in self.graph.order]
        self.inputs = {word for each in nodes.values() for word in each.words if word not in nodes}
        for each in self.nodes:
            self._check(each)

    def _parents(self, node: Node) -> list[str]:
        for name in node.after:
            if name not in self._all:
                raise DefinitionError(
                    f"task {node.name!r} of flow {self.name!r} is to run after {name!r}, which is none of "
                    f"its tasks{_near(name, self._all)}"
                )
        found = [*dict.fromkeys([*(word for word in node.words if word in self._all), *node.after])]
        for name in found:
            if self._all[name].last and name != node.name:
                raise DefinitionError(
                    f"task {node.name!r} of flow {self.name!r} waits for {name!r}, which is its on_failure "
                    "and comes after everything else"
                )
        return found

    def _check(self, node: Node) -> None:
        where = f"task {node.name!r} of flow {self.name!r}"
        if node.when != "all_succeeded" and not self.graph.parents[node.name]:
            raise DefinitionError(
                f"{where} has when={node.when!r} but waits for no task; name one as a parameter or in "
                "after=[…]"
            )
        for word, takers in node.words.items():
            if word not in self._all:
                continue
            given = self._all[word].task.returns
            for taker in takers:
                wanted = taker.hint(word)
                if not fits(given, wanted):
                    raise DefinitionError(
                        f"{where} takes {word}: {said(wanted)}, but task {word!r} returns {said(given)}; "
                        "change one of them"
                    )
            if (
                self._may_lack(node.when, word)
                and not all(is_optional(taker, word) for taker in takers)
                and not all(takes_none(taker.hint(word)) for taker in takers)
            ):
                raise DefinitionError(
                    f"{where} runs when={node.when!r}, so {word!r} may have no result to give: say "
                    f"{word}: {said(takers[-1].hint(word))} | None, or give it a default"
                )

    def _may_lack(self, when: When, parent: str) -> bool:
        """Whether a task that runs by this rule may find a parent without a result."""
        match when:
            case "all_succeeded":
                return False
            case "none_failed":
                return parent in self._skippable
            case _:
                return True

    @cached_property
    def _skippable(self) -> set[str]:
        """Tasks that may be skipped though nothing failed."""
        found: set[str] = set()
        for node in self.nodes:
            inherits = node.when == "all_succeeded" and found.intersection(
                self.graph.parents[node.name]
            )
            if node.skip_if is not None or node.when == "any_failed" or inherits:
                found.add(node.name)
        return found

    @cached_property
    def queues(self) -> list[str]:
        return sorted({node.task.policy.queue for node in self.nodes})

    # For starting

    def taken(self, node: Node) -> list[str]:
        """Which of its arguments are results, of the tasks they are named after."""
        return [word for word in node.words if word in self._all]

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {node.name: number for number, node in enumerate(self.nodes, 1)}

    def children(self, name: str) -> list[int]:
        """The numbers of those that wait for a task; 0 is the run."""
        found = [self.numbers[each] for each in self.graph.children[name]]
        return found if found and name not in self.sinks else [*found, 0]

    @property
    def open(self) -> int:
        """How many the run itself waits for."""
        return sum(0 in self.children(node.name) for node in self.nodes)

    @cached_property
    def _readers(self) -> list[tuple[Node, list[str], list[msgspec.json.Decoder[Any]]]]:
        """Who takes what of the run's input, and how it is checked."""
        found = []
        for node in self.nodes:
            words = [word for word in node.words if word not in self._all]
            if words:
                found.append((node, words, [_reader(taker, words) for taker in node.takers]))
        return found

    def encode(self, given: Mapping[str, Any], limit: int) -> tuple[str, dict[str, str]]:
        """A run's input as JSON, and each task's share of it by the task's name. Checked as the workers
        will read it; refused here, never there."""
        what = f"the input of flow {self.name!r}"
        for word in given:
            if word not in self.inputs:
                raise ArgumentError(
                    f"no task of flow {self.name!r} takes {word!r}; its input is "
                    f"{', '.join(sorted(self.inputs)) or 'empty'}"
                )
        parts = {
            word: codec.encode(value, f"{what} ({word})", limit) for word, value in given.items()
        }
        whole = _object(parts)
        codec.check_size(len(whole.encode()), what, limit)
        shares = {}
        for node, words, readers in self._readers:
            for word in words:
                if word not in parts and not all(
                    is_optional(each, word) for each in node.words[word]
                ):
                    raise ArgumentError(
                        f"task {node.name!r} of flow {self.name!r} takes {word!r}, which is neither one of "
                        f"its tasks nor in the input given{_meant(word, self._all)}"
                    )
            share = _object({word: parts[word] for word in words if word in parts})
            try:
                for reader in readers:
                    reader.decode(share)
            except (msgspec.ValidationError, ValueError) as error:
                reason = (
                    codec.describe(error) if isinstance(error, msgspec.ValidationError) else error
                )
                raise ArgumentError(f"{what} does not fit task {node.name!r}: {reason}") from None
            shares[node.name] = share
        return whole, shares


def named(after: Sequence[Any] | Any) -> Iterator[str]:
    """Names of tasks, said as names or as the tasks themselves."""
    for each in [after] if isinstance(after, str) else after:
        name = each if isinstance(each, str) else getattr(each, "name", None)
        if not isinstance(name, str):
            raise DefinitionError(f"after=[…] takes tasks of the flow or their names, not {each!r}")
        yield name


def is_optional(taker: Definition, word: str) -> bool:
    """Whether it can do without this argument."""
    parameter = taker.parameters.get(word)
    return parameter is None or parameter.default is not inspect.Parameter.empty


def _reader(taker: Definition, words: Sequence[str]) -> msgspec.json.Decoder[Any]:
    """A decoder for some of a function's arguments."""
    fields = {
        word: (taker.hint(word), not is_optional(taker, word))
        for word in words
        if word in taker.parameters
    }
    return taker.decoder_of(fields, "its input")


def _object(parts: Mapping[str, str]) -> str:
    return "{" + ",".join([f'"{word}":{text}' for word, text in parts.items()]) + "}"


def _meant(name: str, names: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; start it with {name}=…"


def _near(name: str, names: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {_some(list(names))}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
