"""Declaration of flows: invalid flows are refused, and each message names the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Context, Flow, Rota
from rota.errors import DefinitionError
from rota.model.flow import MAX_JOBS, FlowDefinition, FlowNode
from rota.model.task import TaskDefinition, TaskPolicy
from support.encoded_input import encoded


def assert_refused(flow: Flow, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        flow.plan  # noqa: B018


# Valid flows


def test_flow_parameter_is_task_result_or_run_input(
    flow: Flow,
) -> None:
    @flow.task
    async def clean(extract: list[str], strict: bool = True) -> int: ...  # type: ignore[empty-body]

    @flow.task
    async def extract(ctx: Context, day: str) -> list[str]: ...  # type: ignore[empty-body]

    @flow.task(after=[clean])
    async def report(day: str) -> None: ...

    assert flow.plan.graph.predecessors == {
        "clean": ["extract"],
        "extract": [],
        "report": ["clean"],
    }
    assert [node.name for node in flow.plan.nodes] == ["extract", "clean", "report"]
    assert flow.plan.inputs == {"day", "strict"}
    assert encoded(flow.plan, day="monday") == (
        {"day": "monday"},
        {"extract": {"day": "monday"}, "clean": {}, "report": {"day": "monday"}},
    )


def test_flow_predecessor_named_twice_is_one_edge(flow: Flow) -> None:
    @flow.task
    def a() -> int: ...  # type: ignore[empty-body]

    @flow.task(after=[a, "a"], skip_if=lambda a: a > 3)
    def b(a: int) -> None: ...

    assert flow.plan.graph.predecessors["b"] == ["a"]


def test_flow_skip_if_parameters_become_predecessors_and_inputs(flow: Flow) -> None:
    @flow.task
    def a() -> int: ...  # type: ignore[empty-body]

    def is_small(a: int, limit: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def b() -> None: ...

    assert flow.plan.graph.predecessors["b"] == ["a"]
    assert flow.plan.inputs == {"limit"}
    assert encoded(flow.plan, limit=3)[1] == {"b": {"limit": 3}}


def test_flow_on_failure_waits_for_all_sinks(flow: Flow) -> None:
    @flow.on_failure
    def tell(ctx: Context) -> None: ...

    @flow.task
    def a() -> None: ...

    @flow.task(after=[a])
    def b() -> None: ...

    @flow.task(after=[a])
    def c() -> None: ...

    assert sorted(flow.plan.graph.predecessors["tell"]) == ["b", "c"]
    assert flow.plan.awaited_jobs == 3


def test_flow_task_can_be_called_as_plain_function(flow: Flow) -> None:
    @flow.task
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert (double(4), double.name, double.__doc__) == (8, "double", "Twice.")


def test_flow_task_added_after_plan_extends_the_plan(flow: Flow) -> None:
    @flow.task
    def a() -> None: ...

    assert [node.name for node in flow.plan.nodes] == ["a"]

    @flow.task(after=["a"])
    def b() -> None: ...

    assert [node.name for node in flow.plan.nodes] == ["a", "b"]


# Invalid flows


def test_flow_cycle_is_refused_with_its_whole_path(flow: Flow) -> None:
    @flow.task
    def load(check: int) -> int: ...  # type: ignore[empty-body]

    @flow.task
    def check(clean: int) -> int: ...  # type: ignore[empty-body]

    @flow.task(after=["load"])
    def clean() -> int: ...  # type: ignore[empty-body]

    assert_refused(
        flow, "load waits for check waits for clean waits for load: .* take one of these out"
    )


def test_flow_task_after_itself_is_refused(flow: Flow) -> None:
    @flow.task(after=["again"])
    def again() -> None: ...

    assert_refused(flow, "again waits for again")


def test_flow_task_with_parameter_of_its_own_name_is_refused(flow: Flow) -> None:
    @flow.task
    def size(size: int) -> int: ...  # type: ignore[empty-body]

    assert_refused(flow, "size waits for size")


def test_flow_after_misspelt_task_suggests_the_name(flow: Flow) -> None:
    @flow.task
    def extract() -> None: ...

    @flow.task(after=["extrct"])
    def clean() -> None: ...

    assert_refused(flow, "'clean' of flow 'etl' is to run after 'extrct'.*did you mean 'extract'")


def test_flow_after_unknown_task_lists_existing_tasks(flow: Flow) -> None:
    @flow.task(after=["zzz"])
    def clean() -> None: ...

    assert_refused(flow, "after 'zzz', which is none of its tasks; there are: clean")


@pytest.mark.parametrize("after", [[3], [len], [None]])
def test_flow_after_invalid_type_is_refused(flow: Flow, after: list[Any]) -> None:
    with pytest.raises(
        DefinitionError, match=r"after=\[…\] takes tasks of the flow or their names"
    ):

        @flow.task(after=after)
        def clean() -> None: ...


def test_flow_task_after_on_failure_is_refused(flow: Flow) -> None:
    @flow.task
    def a() -> None: ...

    @flow.on_failure
    def tell() -> None: ...

    @flow.task(after=[tell])
    def b() -> None: ...

    assert_refused(flow, "'b'.*'tell'")


def test_flow_task_with_result_of_on_failure_is_refused(flow: Flow) -> None:
    @flow.on_failure
    def tell() -> int: ...  # type: ignore[empty-body]

    @flow.task
    def b(tell: int) -> None: ...

    assert_refused(flow, "'b'.*'tell'")


def test_flow_type_mismatch_names_both_tasks_and_types(flow: Flow) -> None:
    @flow.task
    def extract() -> list[str]: ...  # type: ignore[empty-body]

    @flow.task
    def total(extract: list[int]) -> int: ...  # type: ignore[empty-body]

    assert_refused(
        flow,
        r"'total' of flow 'etl' takes extract: list\[int\], but task 'extract' returns list\[str\]; "
        "change one of them",
    )


def test_flow_skip_if_type_mismatch_is_refused(flow: Flow) -> None:
    @flow.task
    def extract() -> list[str]: ...  # type: ignore[empty-body]

    def is_small(extract: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def total() -> int: ...  # type: ignore[empty-body]

    assert_refused(flow, r"takes extract: int, but task 'extract' returns list\[str\]")


def test_flow_skip_if_type_mismatch_beside_valid_task_is_refused(flow: Flow) -> None:
    @flow.task
    def extract() -> list[str]: ...  # type: ignore[empty-body]

    def is_small(extract: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def total(extract: list[str]) -> int: ...  # type: ignore[empty-body]

    assert_refused(flow, r"takes extract: int, but task 'extract' returns list\[str\]")


def test_flow_possibly_missing_result_without_default_is_refused(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    @flow.task(when="all_done")
    def total(extract: int) -> int: ...  # type: ignore[empty-body]

    assert_refused(flow, r"write extract: int \| None, or give it a default")


def test_flow_skip_if_possibly_missing_result_is_refused(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    def is_small(extract: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(when="all_done", skip_if=is_small)
    def total(extract: int = 0) -> int: ...  # type: ignore[empty-body]

    assert_refused(flow, r"write extract: int \| None, or give it a default")


def test_flow_possibly_missing_result_with_none_or_default_is_accepted(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    @flow.task(when="all_done")
    def one(extract: int | None) -> None: ...

    @flow.task(when="any_failed")
    def two(extract: int = 0) -> None: ...

    @flow.task(when="none_failed")
    def three(extract: int) -> None: ...

    assert len(flow.plan.nodes) == 4


def test_flow_none_failed_after_skippable_task_needs_optional_parameter(
    flow: Flow,
) -> None:
    @flow.task(skip_if=lambda: True)
    def a() -> int: ...  # type: ignore[empty-body]

    @flow.task
    def b(a: int) -> int: ...  # type: ignore[empty-body]

    @flow.task(when="none_failed")
    def c(b: int) -> None: ...

    assert_refused(flow, r"'c'.*write b: int \| None")


def test_flow_tasks_without_hints_accept_any_type(flow: Flow) -> None:
    @flow.task
    def a():  # type: ignore[no-untyped-def]
        return 1

    @flow.task
    def b(a: int) -> None: ...

    @flow.task
    def c(a) -> None: ...  # type: ignore[no-untyped-def]

    assert len(flow.plan.nodes) == 3


def test_flow_duplicate_task_name_is_refused(flow: Flow) -> None:
    flow.task(lambda: None, name="a")

    with pytest.raises(DefinitionError, match=r"'etl' has a task called 'a' already.*name=…"):
        flow.task(lambda: None, name="a")


def test_app_name_used_by_flow_or_task_is_refused(app: Rota) -> None:
    app.flow("one")
    app.task(name="two")(_nothing)

    for make in (app.flow, lambda name: app.task(name=name)(_nothing)):
        for name, what in (("one", "flow"), ("two", "task")):
            with pytest.raises(DefinitionError, match=f"there is a {what} called '{name}' already"):
                make(name)


def test_flow_task_name_taken_by_app_task_leaves_flow_unchanged(
    app: Rota,
) -> None:
    flow = app.flow("etl")
    app.task(name="etl.extract")(_nothing)

    with pytest.raises(DefinitionError, match=r"there is a task called 'etl\.extract' already"):
        flow.task(_nothing, name="extract")
    with pytest.raises(DefinitionError, match="has no tasks"):
        flow.plan  # noqa: B018


def _nothing() -> None: ...


def test_flow_second_on_failure_is_refused(flow: Flow) -> None:
    flow.on_failure(_nothing, name="one")

    with pytest.raises(DefinitionError, match="'etl' has an on_failure task already"):
        flow.on_failure(_nothing, name="two")


def test_flow_when_rule_without_predecessors_is_refused(flow: Flow) -> None:
    flow.task(_nothing, name="a", when="all_done")

    assert_refused(flow, r"'a' of flow 'etl' has when='all_done' but waits for no task; name one")


def test_flow_unknown_when_rule_lists_valid_rules(flow: Flow) -> None:
    with pytest.raises(DefinitionError, match="all_succeeded, none_failed, all_done, any_failed"):
        flow.task(_nothing, when="sometimes")  # type: ignore[call-overload]


def test_flow_skip_if_async_or_with_context_is_refused(flow: Flow) -> None:
    async def slow() -> bool: ...  # type: ignore[empty-body]
    def with_context(ctx: Context) -> bool: ...  # type: ignore[empty-body]

    for condition in (slow, with_context):
        with pytest.raises(
            DefinitionError, match="skip_if of task '_nothing' must be a plain function"
        ):
            flow.task(_nothing, skip_if=condition)


@pytest.mark.parametrize("name", ["not-one", "a.b", "1st", "a b"])
def test_flow_task_name_not_a_python_name_is_refused(flow: Flow, name: str) -> None:
    with pytest.raises(DefinitionError, match=r"must be a Python name|cannot be a task's name"):
        flow.task(_nothing, name=name)


@pytest.mark.parametrize("name", ["", "a b", "1st", "x" * 201])
def test_flow_invalid_name_is_refused(app: Rota, name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be a flow's name"):
        app.flow(name)


def test_flow_without_tasks_is_refused_at_plan(flow: Flow) -> None:
    assert_refused(flow, "flow 'etl' has no tasks; write some with @etl.task")


def test_flow_with_only_on_failure_is_refused(flow: Flow) -> None:
    flow.on_failure(_nothing)

    assert_refused(flow, "etl")


def test_flow_beyond_10000_tasks_is_refused() -> None:
    definition = FlowDefinition("wide")
    for number in range(MAX_JOBS):
        definition.add(
            FlowNode(f"t{number}", TaskDefinition(_nothing, f"wide.t{number}", TaskPolicy()))
        )

    with pytest.raises(
        DefinitionError, match=r"more than 10,000 tasks; split it, or fan out with ctx\.map"
    ):
        definition.add(FlowNode("more", TaskDefinition(_nothing, "wide.more", TaskPolicy())))
    assert definition.plan.awaited_jobs == MAX_JOBS
