"""Declaration of flows: invalid flows are refused, and each message names the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Context, Flow, Rota
from rota.errors import DefinitionError
from rota.model.flow import MAX_JOBS, FlowDefinition, FlowNode
from rota.model.task import TaskDefinition, TaskPolicy
from unit.inputs import encoded


def refused(flow: Flow, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        flow.plan  # noqa: B018


# Valid flows


def test_a_parameter_named_after_a_task_waits_for_it_and_others_come_from_the_input(
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


def test_a_task_named_twice_is_waited_for_once(flow: Flow) -> None:
    @flow.task
    def a() -> int: ...  # type: ignore[empty-body]

    @flow.task(after=[a, "a"], skip_if=lambda a: a > 3)
    def b(a: int) -> None: ...

    assert flow.plan.graph.predecessors["b"] == ["a"]


def test_a_condition_waits_for_what_it_takes(flow: Flow) -> None:
    @flow.task
    def a() -> int: ...  # type: ignore[empty-body]

    def is_small(a: int, limit: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def b() -> None: ...

    assert flow.plan.graph.predecessors["b"] == ["a"]
    assert flow.plan.inputs == {"limit"}
    assert encoded(flow.plan, limit=3)[1] == {"b": {"limit": 3}}


def test_on_failure_waits_for_all_that_nothing_else_waits_for(flow: Flow) -> None:
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


def test_tasks_of_a_flow_can_be_called_as_the_functions_they_were(flow: Flow) -> None:
    @flow.task
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert (double(4), double.name, double.__doc__) == (8, "double", "Twice.")


def test_tasks_may_be_added_until_the_flow_is_used_and_after(flow: Flow) -> None:
    @flow.task
    def a() -> None: ...

    assert [node.name for node in flow.plan.nodes] == ["a"]

    @flow.task(after=["a"])
    def b() -> None: ...

    assert [node.name for node in flow.plan.nodes] == ["a", "b"]


# Invalid flows


def test_a_circle_is_said_in_full(flow: Flow) -> None:
    @flow.task
    def load(check: int) -> int: ...  # type: ignore[empty-body]

    @flow.task
    def check(clean: int) -> int: ...  # type: ignore[empty-body]

    @flow.task(after=["load"])
    def clean() -> int: ...  # type: ignore[empty-body]

    refused(flow, "load waits for check waits for clean waits for load: .* take one of these out")


def test_a_task_that_waits_for_itself_is_refused(flow: Flow) -> None:
    @flow.task(after=["again"])
    def again() -> None: ...

    refused(flow, "again waits for again")


def test_a_task_that_takes_its_own_name_is_refused(flow: Flow) -> None:
    @flow.task
    def size(size: int) -> int: ...  # type: ignore[empty-body]

    refused(flow, "size waits for size")


def test_an_unknown_name_in_after_is_said_with_what_it_may_have_meant(flow: Flow) -> None:
    @flow.task
    def extract() -> None: ...

    @flow.task(after=["extrct"])
    def clean() -> None: ...

    refused(flow, "'clean' of flow 'etl' is to run after 'extrct'.*did you mean 'extract'")


def test_an_unknown_name_that_resembles_nothing_is_said_with_those_there_are(flow: Flow) -> None:
    @flow.task(after=["zzz"])
    def clean() -> None: ...

    refused(flow, "after 'zzz', which is none of its tasks; there are: clean")


@pytest.mark.parametrize("after", [[3], [len], [None]])
def test_after_takes_tasks_and_names(flow: Flow, after: list[Any]) -> None:
    with pytest.raises(
        DefinitionError, match=r"after=\[…\] takes tasks of the flow or their names"
    ):

        @flow.task(after=after)
        def clean() -> None: ...


def test_nothing_can_wait_for_on_failure(flow: Flow) -> None:
    @flow.task
    def a() -> None: ...

    @flow.on_failure
    def tell() -> None: ...

    @flow.task(after=[tell])
    def b() -> None: ...

    refused(flow, "'b'.*'tell'")


def test_nothing_can_take_what_on_failure_returns(flow: Flow) -> None:
    @flow.on_failure
    def tell() -> int: ...  # type: ignore[empty-body]

    @flow.task
    def b(tell: int) -> None: ...

    refused(flow, "'b'.*'tell'")


def test_a_type_that_does_not_fit_is_said_with_both(flow: Flow) -> None:
    @flow.task
    def extract() -> list[str]: ...  # type: ignore[empty-body]

    @flow.task
    def total(extract: list[int]) -> int: ...  # type: ignore[empty-body]

    refused(
        flow,
        r"'total' of flow 'etl' takes extract: list\[int\], but task 'extract' returns list\[str\]; "
        "change one of them",
    )


def test_a_condition_must_fit_as_well(flow: Flow) -> None:
    @flow.task
    def extract() -> list[str]: ...  # type: ignore[empty-body]

    def is_small(extract: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def total() -> int: ...  # type: ignore[empty-body]

    refused(flow, r"takes extract: int, but task 'extract' returns list\[str\]")


def test_a_condition_must_fit_also_where_the_task_takes_the_same(flow: Flow) -> None:
    @flow.task
    def extract() -> list[str]: ...  # type: ignore[empty-body]

    def is_small(extract: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def total(extract: list[str]) -> int: ...  # type: ignore[empty-body]

    refused(flow, r"takes extract: int, but task 'extract' returns list\[str\]")


def test_a_result_that_may_be_missing_must_be_provided_for(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    @flow.task(when="all_done")
    def total(extract: int) -> int: ...  # type: ignore[empty-body]

    refused(flow, r"write extract: int \| None, or give it a default")


def test_a_condition_must_provide_for_a_missing_result_also_where_the_task_does(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    def is_small(extract: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(when="all_done", skip_if=is_small)
    def total(extract: int = 0) -> int: ...  # type: ignore[empty-body]

    refused(flow, r"write extract: int \| None, or give it a default")


def test_a_result_that_may_be_missing_is_provided_for_by_none_or_a_default(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    @flow.task(when="all_done")
    def one(extract: int | None) -> None: ...

    @flow.task(when="any_failed")
    def two(extract: int = 0) -> None: ...

    @flow.task(when="none_failed")
    def three(extract: int) -> None: ...

    assert len(flow.plan.nodes) == 4


def test_a_skip_on_purpose_leaves_a_result_missing_for_whoever_runs_all_the_same(
    flow: Flow,
) -> None:
    @flow.task(skip_if=lambda: True)
    def a() -> int: ...  # type: ignore[empty-body]

    @flow.task
    def b(a: int) -> int: ...  # type: ignore[empty-body]

    @flow.task(when="none_failed")
    def c(b: int) -> None: ...

    refused(flow, r"'c'.*write b: int \| None")


def test_a_task_without_hints_fits_anything(flow: Flow) -> None:
    @flow.task
    def a():  # type: ignore[no-untyped-def]
        return 1

    @flow.task
    def b(a: int) -> None: ...

    @flow.task
    def c(a) -> None: ...  # type: ignore[no-untyped-def]

    assert len(flow.plan.nodes) == 3


def test_two_tasks_of_one_name_are_refused(flow: Flow) -> None:
    flow.task(lambda: None, name="a")

    with pytest.raises(DefinitionError, match=r"'etl' has a task called 'a' already.*name=…"):
        flow.task(lambda: None, name="a")


def test_a_flow_and_a_task_share_their_names(app: Rota) -> None:
    app.flow("one")
    app.task(name="two")(_nothing)

    for make in (app.flow, lambda name: app.task(name=name)(_nothing)):
        for name, what in (("one", "flow"), ("two", "task")):
            with pytest.raises(DefinitionError, match=f"there is a {what} called '{name}' already"):
                make(name)


def test_a_task_called_like_one_of_a_flow_is_refused_and_leaves_the_flow_as_it_was(
    app: Rota,
) -> None:
    flow = app.flow("etl")
    app.task(name="etl.extract")(_nothing)

    with pytest.raises(DefinitionError, match=r"there is a task called 'etl\.extract' already"):
        flow.task(_nothing, name="extract")
    with pytest.raises(DefinitionError, match="has no tasks"):
        flow.plan  # noqa: B018


def _nothing() -> None: ...


def test_a_second_on_failure_is_refused(flow: Flow) -> None:
    flow.on_failure(_nothing, name="one")

    with pytest.raises(DefinitionError, match="'etl' has an on_failure task already"):
        flow.on_failure(_nothing, name="two")


def test_a_rule_without_anybody_to_wait_for_is_refused(flow: Flow) -> None:
    flow.task(_nothing, name="a", when="all_done")

    refused(flow, r"'a' of flow 'etl' has when='all_done' but waits for no task; name one")


def test_a_rule_there_is_not_is_refused_with_those_there_are(flow: Flow) -> None:
    with pytest.raises(DefinitionError, match="all_succeeded, none_failed, all_done, any_failed"):
        flow.task(_nothing, when="sometimes")  # type: ignore[call-overload]


def test_a_condition_is_a_plain_function(flow: Flow) -> None:
    async def slow() -> bool: ...  # type: ignore[empty-body]
    def with_context(ctx: Context) -> bool: ...  # type: ignore[empty-body]

    for condition in (slow, with_context):
        with pytest.raises(
            DefinitionError, match="skip_if of task '_nothing' must be a plain function"
        ):
            flow.task(_nothing, skip_if=condition)


@pytest.mark.parametrize("name", ["not-one", "a.b", "1st", "a b"])
def test_a_name_no_parameter_can_have_is_refused(flow: Flow, name: str) -> None:
    with pytest.raises(DefinitionError, match=r"must be a Python name|cannot be a task's name"):
        flow.task(_nothing, name=name)


@pytest.mark.parametrize("name", ["", "a b", "1st", "x" * 201])
def test_a_flow_has_a_name_like_a_task(app: Rota, name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be a flow's name"):
        app.flow(name)


def test_a_flow_without_tasks_is_refused_when_it_is_used(flow: Flow) -> None:
    refused(flow, "flow 'etl' has no tasks; write some with @etl.task")


def test_on_failure_alone_is_not_a_flow(flow: Flow) -> None:
    flow.on_failure(_nothing)

    refused(flow, "etl")


def test_a_flow_has_up_to_ten_thousand_tasks() -> None:
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
