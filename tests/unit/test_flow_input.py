"""Input of a flow's run: checked at the start against every task that uses it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from rota import Flow
from rota.errors import ArgumentError, PayloadTooLarge
from rota.model.flow import FlowPlan
from unit.inputs import LIMIT, encoded


@pytest.fixture
def plan(flow: Flow) -> FlowPlan:
    @flow.task
    def extract(day: str, sizes: list[int] | None = None) -> list[str]: ...  # type: ignore[empty-body]

    @flow.task
    def clean(extract: list[str], strict: bool) -> int: ...  # type: ignore[empty-body]

    return flow.plan


def test_what_no_task_takes_is_refused_with_what_there_is(plan: FlowPlan) -> None:
    with pytest.raises(
        ArgumentError, match="no task of flow 'etl' takes 'dya'; its input is day, sizes, strict"
    ):
        encoded(plan, dya="monday")


def test_a_result_cannot_be_given(plan: FlowPlan) -> None:
    with pytest.raises(ArgumentError, match="no task of flow 'etl' takes 'extract'"):
        encoded(plan, day="monday", strict=True, extract=[])


def test_what_is_missing_is_said_with_the_task_that_takes_it(plan: FlowPlan) -> None:
    with pytest.raises(
        ArgumentError,
        match="task 'clean' of flow 'etl' takes 'strict', which is neither one of its tasks nor in the",
    ):
        encoded(plan, day="monday")


def test_a_parameter_that_is_nearly_a_task_is_said_so(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    @flow.task
    def clean(extrac: int) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(ArgumentError, match=r"takes 'extrac'.*did you mean 'extract'"):
        encoded(flow.plan)


def test_a_wrong_type_is_said_with_task_and_field(plan: FlowPlan) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"input of flow 'etl' does not fit task 'extract'.*int.*str.*sizes\[1\]",
    ):
        encoded(plan, day="monday", strict=True, sizes=[1, "x"])


def test_a_wrong_type_for_a_condition_is_refused_too(flow: Flow) -> None:
    def is_small(limit: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def total(limit: Any) -> None: ...

    with pytest.raises(ArgumentError, match="does not fit task 'total'"):
        encoded(flow.plan, limit="much")


def test_too_much_is_refused_by_field_and_as_a_whole(plan: FlowPlan) -> None:
    with pytest.raises(PayloadTooLarge, match=r"the input of flow 'etl' \(day\)"):
        encoded(plan, day="x" * LIMIT, strict=True)
    with pytest.raises(PayloadTooLarge, match="the input of flow 'etl'"):
        encoded(plan, day="x" * (LIMIT - 10), strict=True)


def test_parameters_keep_their_defaults(plan: FlowPlan) -> None:
    assert encoded(plan, day="monday", strict=True)[1]["extract"] == {"day": "monday"}
    assert inspect.signature(plan.nodes[0].task.fn).parameters["sizes"].default is None
