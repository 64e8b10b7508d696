"""Flows: graphs of tasks, checked as a whole before a run is started.

A parameter named after another task of the flow makes the task wait for that one and receives its result.
Every other parameter is taken from the input of the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import msgspec

from rota.errors import ArgumentError, DefinitionError
from rota.model import codec
from rota.model.graph import Graph
from rota.model.task import TaskDefinition, check_name
from rota.model.text import closest_name
from rota.model.type_match import accepts_none, format_type, is_assignable

MAX_JOBS = 10_000
"""Maximum number of jobs in one run."""

When = Literal["all_succeeded", "none_failed", "all_done", "any_failed"]


class FlowNode(msgspec.Struct, frozen=True, dict=True):
    """Task of a flow. `task` is registered under the names of the flow and the task: etl.extract."""

    name: str
    task: TaskDefinition
    after: tuple[str, ...] = ()
    when: When = "all_succeeded"
    skip_if: TaskDefinition | None = None
    is_on_failure: bool = False
    """True for the flow's on_failure task, which waits for every job at which a failure can end."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DefinitionError(
                f"{self.name!r} cannot be a flow's task: its successors name it as a parameter, so it "
                "must be a Python name"
            )
        if self.when not in get_args(When):
            raise DefinitionError(
                f"task {self.name!r}: when is one of {', '.join(get_args(When))}, not {self.when!r}"
            )

    @property
    def consumers(self) -> list[TaskDefinition]:
        return [self.task] if self.skip_if is None else [self.task, self.skip_if]

    @cached_property
    def parameters(self) -> dict[str, list[TaskDefinition]]:
        """Parameters of the task and of its condition, each with the functions that take it."""
        found: dict[str, list[TaskDefinition]] = {}
        for consumer in self.consumers:
            for parameter in consumer.parameters:
                found.setdefault(parameter, []).append(consumer)
        return found


class FlowDefinition:
    """Definition of a flow, independent of an app."""

    def __init__(self, name: str) -> None:
        self.name = check_name("flow", name)
        self._nodes: dict[str, FlowNode] = {}
        self._plan: FlowPlan | None = None

    def add(self, node: FlowNode) -> None:
        if node.name in self._nodes:
            raise DefinitionError(
                f"flow {self.name!r} has a task called {node.name!r} already; give one of them name=…"
            )
        if node.is_on_failure and any(each.is_on_failure for each in self._nodes.values()):
            raise DefinitionError(f"flow {self.name!r} has an on_failure task already")
        if len(self._nodes) == MAX_JOBS:
            raise DefinitionError(
                f"flow {self.name!r} would have more than {MAX_JOBS:,} tasks; split it, or fan out with "
                "ctx.map from one of them"
            )
        self._nodes[node.name] = node
        self._plan = None

    @property
    def nodes(self) -> Mapping[str, FlowNode]:
        return self._nodes

    @property
    def plan(self) -> FlowPlan:
        """Checked plan of the flow. It is built on first use: until then, tasks can be added."""
        if self._plan is None:
            self._plan = FlowPlan(self.name, self._nodes)
        return self._plan


class FlowPlan:
    """Jobs of a run of a flow, each after its predecessors."""

    def __init__(self, name: str, nodes: Mapping[str, FlowNode]) -> None:
        if not nodes:
            raise DefinitionError(
                f"flow {name!r} has no tasks; write some with @{name}.task before it is used"
            )
        self.name = name
        self._nodes_by_name = nodes
        predecessors = {
            each.name: self._predecessors(each) for each in nodes.values() if not each.is_on_failure
        }
        self.sinks = frozenset(Graph(predecessors).sinks)
        # Jobs at which a failure may stop spreading: the last tasks, and the predecessors of tasks that run
        # in spite of a failure or because of it.
        failure_ends = {*self.sinks}
        for name in predecessors:
            if nodes[name].when in ("all_done", "any_failed"):
                failure_ends.update(predecessors[name])
        for each in nodes.values():
            if each.is_on_failure:
                awaited = [
                    *self._predecessors(each),
                    *(name for name in nodes if name in failure_ends),
                ]
                predecessors[each.name] = list(dict.fromkeys(awaited))
        self.graph = Graph(predecessors)
        self.nodes = [nodes[each] for each in self.graph.order]
        self.inputs = {
            parameter
            for each in nodes.values()
            for parameter in each.parameters
            if parameter not in nodes
        }
        for each in self.nodes:
            self._check(each)

    def _predecessors(self, node: FlowNode) -> list[str]:
        for name in node.after:
            if name not in self._nodes_by_name:
                raise DefinitionError(
                    f"task {node.name!r} of flow {self.name!r} is to run after {name!r}, which is none of "
                    f"its tasks{_suggest_task(name, self._nodes_by_name)}"
                )
        found = list(dict.fromkeys([*self.result_parameters(node), *node.after]))
        for name in found:
            if self._nodes_by_name[name].is_on_failure and name != node.name:
                raise DefinitionError(
                    f"task {node.name!r} of flow {self.name!r} waits for {name!r}, which is its on_failure "
                    "and comes after everything else"
                )
        return found

    def _check(self, node: FlowNode) -> None:
        subject = f"task {node.name!r} of flow {self.name!r}"
        if node.when != "all_succeeded" and not self.graph.predecessors[node.name]:
            raise DefinitionError(
                f"{subject} has when={node.when!r} but waits for no task; name one as a parameter or in "
                "after=[…]"
            )
        for parameter, consumers in node.parameters.items():
            if parameter not in self._nodes_by_name:
                continue
            returned_type = self._nodes_by_name[parameter].task.returns
            for consumer in consumers:
                expected_type = consumer.hint(parameter)
                if not is_assignable(returned_type, expected_type):
                    raise DefinitionError(
                        f"{subject} takes {parameter}: {format_type(expected_type)}, but task "
                        f"{parameter!r} returns {format_type(returned_type)}; change one of them"
                    )
            if (
                self._may_lack_result(node.when, parameter)
                and not all(is_optional(consumer, parameter) for consumer in consumers)
                and not all(accepts_none(consumer.hint(parameter)) for consumer in consumers)
            ):
                raise DefinitionError(
                    f"{subject} runs when={node.when!r}, so {parameter!r} may have no result to give: "
                    f"write {parameter}: {format_type(consumers[-1].hint(parameter))} | None, or give it "
                    "a default"
                )

    def _may_lack_result(self, when: When, predecessor: str) -> bool:
        """True if a task with this rule may run although a predecessor has no result."""
        match when:
            case "all_succeeded":
                return False
            case "none_failed":
                return predecessor in self._skippable
            case _:
                return True

    @cached_property
    def _skippable(self) -> set[str]:
        """Tasks that may be skipped although no task failed."""
        found: set[str] = set()
        for node in self.nodes:
            inherits = node.when == "all_succeeded" and found.intersection(
                self.graph.predecessors[node.name]
            )
            if node.skip_if is not None or node.when == "any_failed" or inherits:
                found.add(node.name)
        return found

    @cached_property
    def queues(self) -> list[str]:
        return sorted({node.task.policy.queue for node in self.nodes})

    # Used to start runs

    def result_parameters(self, node: FlowNode) -> list[str]:
        """Return the parameters that receive the results of tasks."""
        return [parameter for parameter in node.parameters if parameter in self._nodes_by_name]

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {node.name: number for number, node in enumerate(self.nodes, 1)}

    def successors(self, name: str) -> list[int]:
        """Return the numbers of a task's successors; 0 is the run itself."""
        found = [self.numbers[each] for each in self.graph.successors[name]]
        return found if found and name not in self.sinks else [*found, 0]

    @property
    def awaited_jobs(self) -> int:
        """Number of jobs that the run itself waits for."""
        return sum(0 in self.successors(node.name) for node in self.nodes)

    @cached_property
    def _input_decoders(self) -> list[tuple[FlowNode, list[str], list[msgspec.json.Decoder[Any]]]]:
        """For each task with input parameters: the parameters, and the decoders that check them."""
        found = []
        for node in self.nodes:
            parameters = [
                parameter for parameter in node.parameters if parameter not in self._nodes_by_name
            ]
            if parameters:
                decoders = [_input_decoder(consumer, parameters) for consumer in node.consumers]
                found.append((node, parameters, decoders))
        return found

    def encode(self, arguments: Mapping[str, Any], limit: int) -> tuple[str, dict[str, str]]:
        """Return the input of a run as JSON, and the share of each task by its name.

        The input is checked with the decoders that workers use. Invalid input is therefore refused here and
        never by a worker.
        """
        subject = f"the input of flow {self.name!r}"
        for parameter in arguments:
            if parameter not in self.inputs:
                raise ArgumentError(
                    f"no task of flow {self.name!r} takes {parameter!r}; its input is "
                    f"{', '.join(sorted(self.inputs)) or 'empty'}"
                )
        encoded = {
            parameter: codec.encode(value, f"{subject} ({parameter})", limit)
            for parameter, value in arguments.items()
        }
        document = _json_object(encoded)
        codec.check_size(len(document.encode()), subject, limit)
        task_inputs = {}
        for node, parameters, decoders in self._input_decoders:
            self._check_complete(node, parameters, encoded)
            task_input = _json_object(
                {parameter: encoded[parameter] for parameter in parameters if parameter in encoded}
            )
            for decoder in decoders:
                _check_input(decoder, task_input, f"{subject} does not fit task {node.name!r}")
            task_inputs[node.name] = task_input
        return document, task_inputs

    def _check_complete(
        self, node: FlowNode, parameters: Iterable[str], given: Collection[str]
    ) -> None:
        for parameter in parameters:
            if parameter not in given and not all(
                is_optional(each, parameter) for each in node.parameters[parameter]
            ):
                raise ArgumentError(
                    f"task {node.name!r} of flow {self.name!r} takes {parameter!r}, which is "
                    "neither one of its tasks nor in the input "
                    f"given{_suggest_input(parameter, self._nodes_by_name)}"
                )


def _check_input(decoder: msgspec.json.Decoder[Any], task_input: str, refusal: str) -> None:
    try:
        decoder.decode(task_input)
    except (msgspec.ValidationError, ValueError) as error:
        raise ArgumentError(f"{refusal}: {codec.describe(error)}") from None


def task_names(after: Sequence[Any] | Any) -> Iterator[str]:
    """Yield task names, given as names or as tasks."""
    for each in [after] if isinstance(after, str) else after:
        name = each if isinstance(each, str) else getattr(each, "name", None)
        if not isinstance(name, str):
            raise DefinitionError(f"after=[…] takes tasks of the flow or their names, not {each!r}")
        yield name


def is_optional(consumer: TaskDefinition, name: str) -> bool:
    """True if the function does not require this argument."""
    parameter = consumer.parameters.get(name)
    return parameter is None or parameter.default is not inspect.Parameter.empty


def _input_decoder(consumer: TaskDefinition, names: Sequence[str]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for some arguments of a function."""
    fields = {
        name: (consumer.hint(name), not is_optional(consumer, name))
        for name in names
        if name in consumer.parameters
    }
    return consumer.decoder_for(fields, "its input")


def _json_object(parts: Mapping[str, str]) -> str:
    return "{" + ",".join([f'"{name}":{text}' for name, text in parts.items()]) + "}"


def _suggest_input(name: str, names: Mapping[str, Any]) -> str:
    closest = closest_name(name, names)
    return f"; did you mean {closest!r}?" if closest else f"; start it with {name}=…"


def _suggest_task(name: str, names: Mapping[str, Any]) -> str:
    closest = closest_name(name, names)
    return f"; did you mean {closest!r}?" if closest else f"; there are: {_abbreviate(list(names))}"


def _abbreviate(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
