"""Input of a flow's run: checked at the start against every task that uses it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from rota import Flow
from rota.errors import ArgumentError, PayloadTooLarge
from rota.model.flow import FlowPlan
from support.encoded_input import LIMIT, encoded


@pytest.fixture
def plan(flow: Flow) -> FlowPlan:
    @flow.task
    def extract(day: str, sizes: list[int] | None = None) -> list[str]: ...  # type: ignore[empty-body]

    @flow.task
    def clean(extract: list[str], strict: bool) -> int: ...  # type: ignore[empty-body]

    return flow.plan


def test_flow_input_unknown_name_lists_accepted_names(plan: FlowPlan) -> None:
    with pytest.raises(
        ArgumentError, match="no task of flow 'etl' takes 'dya'; its input is day, sizes, strict"
    ):
        encoded(plan, dya="monday")


def test_flow_input_named_as_task_is_refused(plan: FlowPlan) -> None:
    with pytest.raises(ArgumentError, match="no task of flow 'etl' takes 'extract'"):
        encoded(plan, day="monday", strict=True, extract=[])


def test_flow_input_missing_value_names_the_task(plan: FlowPlan) -> None:
    with pytest.raises(
        ArgumentError,
        match="task 'clean' of flow 'etl' takes 'strict', which is neither one of its tasks nor in the",
    ):
        encoded(plan, day="monday")


def test_flow_input_missing_value_suggests_similar_task(flow: Flow) -> None:
    @flow.task
    def extract() -> int: ...  # type: ignore[empty-body]

    @flow.task
    def clean(extrac: int) -> int: ...  # type: ignore[empty-body]

    with pytest.raises(ArgumentError, match=r"takes 'extrac'.*did you mean 'extract'"):
        encoded(flow.plan)


def test_flow_input_wrong_type_names_task_and_field(plan: FlowPlan) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"input of flow 'etl' does not fit task 'extract'.*int.*str.*sizes\[1\]",
    ):
        encoded(plan, day="monday", strict=True, sizes=[1, "x"])


def test_flow_input_wrong_type_for_skip_if_is_refused(flow: Flow) -> None:
    def is_small(limit: int) -> bool: ...  # type: ignore[empty-body]

    @flow.task(skip_if=is_small)
    def total(limit: Any) -> None: ...

    with pytest.raises(ArgumentError, match="does not fit task 'total'"):
        encoded(flow.plan, limit="much")


def test_flow_input_field_or_total_too_large_is_refused(plan: FlowPlan) -> None:
    with pytest.raises(PayloadTooLarge, match=r"the input of flow 'etl' \(day\)"):
        encoded(plan, day="x" * LIMIT, strict=True)
    with pytest.raises(PayloadTooLarge, match="the input of flow 'etl'"):
        encoded(plan, day="x" * (LIMIT - 10), strict=True)


def test_flow_input_omitted_default_is_not_stored(plan: FlowPlan) -> None:
    assert encoded(plan, day="monday", strict=True)[1]["extract"] == {"day": "monday"}
    assert inspect.signature(plan.nodes[0].task.fn).parameters["sizes"].default is None
