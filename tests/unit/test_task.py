"""Tasks: arguments are bound to parameters, and refused if they do not fit."""

from __future__ import annotations

import decimal
import json
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import rota
from rota import Context
from rota.errors import ArgumentError, DefinitionError, PayloadTooLarge, ResultError
from rota.model.context import Context as Ctx
from rota.model.registry import Registry
from rota.model.retry import Retry
from rota.model.task import TaskDefinition, TaskPolicy

LIMIT = 256 * 1024


def define(fn: Any, name: str = "resize") -> TaskDefinition:
    return TaskDefinition(fn, name, TaskPolicy())


def bound(fn: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the input that is stored for this call."""
    stored: dict[str, Any] = json.loads(define(fn).encode(args, kwargs, LIMIT))
    return stored


async def resize(path: str, width: int = 100, *, sharp: bool = False) -> str:
    return f"{path}{width}{sharp}"


def test_task_arguments_are_stored_by_name() -> None:
    expected = {"path": "a", "width": 5}

    assert bound(resize, "a", 5) == expected
    assert bound(resize, "a", width=5) == expected
    assert bound(resize, width=5, path="a") == expected


def test_task_default_arguments_are_not_stored() -> None:
    """A default that changes with a deploy applies to jobs that are already queued."""
    assert bound(resize, "a") == {"path": "a"}


def test_task_keyword_only_argument_by_position_is_refused() -> None:
    assert bound(resize, "a", sharp=True) == {"path": "a", "sharp": True}
    with pytest.raises(ArgumentError, match="takes 2 arguments by position, 3 were given"):
        bound(resize, "a", 5, True)


def test_task_argument_of_wrong_type_is_refused_with_its_name() -> None:
    with pytest.raises(ArgumentError, match=r"do not fit task 'resize'.*int.*str.*\(in width\)"):
        bound(resize, "a", width="wide")


def test_task_nested_argument_of_wrong_type_names_its_path() -> None:
    def sizes(boxes: list[dict[str, int]]) -> None: ...

    with pytest.raises(ArgumentError, match=r"\(in boxes\[1\]\[\.\.\.\]\)"):
        bound(sizes, [{"w": 1}, {"w": "x"}])


def test_task_unknown_argument_lists_accepted_arguments() -> None:
    with pytest.raises(
        ArgumentError, match="takes no argument 'widht'; it takes path, width, sharp"
    ):
        bound(resize, "a", widht=5)


def test_task_missing_argument_is_refused_with_its_name() -> None:
    with pytest.raises(ArgumentError, match="missing required field `path`"):
        bound(resize, width=5)


def test_task_argument_given_twice_is_refused() -> None:
    with pytest.raises(ArgumentError, match="was given 'path' twice"):
        bound(resize, "a", path="b")


def test_task_argument_none_is_stored_if_the_hint_allows() -> None:
    def send(to: str, note: str | None = "hello") -> None: ...

    assert bound(send, "a", None) == {"to": "a", "note": None}
    with pytest.raises(ArgumentError, match=r"\(in to\)"):
        bound(send, None)


def test_task_pydantic_argument_is_validated_by_its_model() -> None:
    class Order(BaseModel):
        items: int

    def ship(order: Order) -> None: ...

    # A hint that names a local class cannot be resolved; the class itself needs no lookup.
    ship.__annotations__ = {"order": Order, "return": None}
    assert bound(ship, Order(items=3)) == {"order": {"items": 3}}
    assert bound(ship, {"items": 3}) == {"order": {"items": 3}}
    with pytest.raises(ArgumentError, match="items"):
        bound(ship, {"items": "many"})


def test_task_arguments_too_large_are_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="the arguments of task 'resize'"):
        bound(resize, "a" * LIMIT)


# Invalid tasks


def test_task_variadic_or_positional_only_parameters_are_refused() -> None:
    def many(*paths: str) -> None: ...
    def any_(**options: str) -> None: ...
    def place(path: str, /) -> None: ...

    for fn, message in (
        (many, r"takes \*paths"),
        (any_, r"takes \*options"),
        (place, "drop the /"),
    ):
        with pytest.raises(DefinitionError, match=message):
            define(fn)


@pytest.mark.parametrize("name", ["", "1st", "a b", "x" * 201, "a\n", "ä b"])
def test_task_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be a task's name"):
        define(resize, name)


@pytest.mark.parametrize("name", ["a", "_x", "mail.send", "mail:send/now-1", "größe"])
def test_task_name_with_separators_is_accepted(name: str) -> None:
    assert define(resize, name).name == name


def test_task_duplicate_name_is_refused() -> None:
    registry = Registry()
    registry.add(define(resize))

    with pytest.raises(DefinitionError, match="there is a task called 'resize' already"):
        registry.add(define(resize))


def test_task_policy_invalid_priority_timeout_or_queue_is_refused() -> None:
    with pytest.raises(DefinitionError, match="priority is from 0 to 9"):
        TaskPolicy(priority=10)
    with pytest.raises(DefinitionError, match="timeout must be above 0"):
        TaskPolicy(timeout=0)
    with pytest.raises(DefinitionError, match="cannot be a queue's name"):
        TaskPolicy(queue="a b")
    assert TaskPolicy(retry=Retry(max_attempts=1)).retry.max_attempts == 1


def test_task_unresolvable_hint_is_refused() -> None:
    def lost(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DefinitionError, match=r"Nowhere.*must name things that exist"):
        define(lost).arguments_decoder  # noqa: B018


def test_task_hint_without_json_form_is_refused() -> None:
    def odd(x: int | None = None) -> None: ...

    odd.__annotations__ = {"x": dict[str, int] | dict[str, str]}
    with pytest.raises(DefinitionError, match="cannot come out of JSON"):
        define(odd).arguments_decoder  # noqa: B018


# The context


def test_task_first_parameter_of_type_context_gets_context() -> None:
    """This file has `from __future__ import annotations`, so that the hints are strings."""

    def by_name(ctx: Context, path: str) -> None: ...
    def by_another_name(job: rota.Context, path: str) -> None: ...
    def without_hint(ctx, path: str) -> None: ...  # type: ignore[no-untyped-def]
    def only(ctx: Context) -> None: ...

    for fn in (by_name, by_another_name, without_hint, only):
        assert define(fn).takes_context, fn.__name__
    assert bound(by_name, "a") == {"path": "a"}
    assert bound(only) == {}


def test_task_context_is_found_by_type_instead_of_name() -> None:
    def ours(ctx: Ctx) -> None: ...
    def theirs(ctx: decimal.Context) -> None: ...

    assert (define(ours).takes_context, define(theirs).takes_context) == (True, False)


def test_task_context_hint_as_type_object_is_found() -> None:
    def typed(ctx: Any, path: str) -> None: ...

    typed.__annotations__ = {"ctx": Context, "path": str}
    assert define(typed).takes_context


def test_task_other_first_parameter_is_an_argument() -> None:
    def another_type(ctx: str) -> None: ...
    def second(path: str, ctx: Context) -> None: ...

    assert not define(another_type).takes_context
    assert not define(second).takes_context


# Results


def test_task_result_is_decoded_by_return_hint() -> None:
    def counts() -> dict[str, int]: ...  # type: ignore[empty-body]

    task = define(counts)
    assert task.read_result(b'{"a": 1}') == {"a": 1}
    assert task.read_result(None) is None
    with pytest.raises(ResultError, match=r"does not match its return type.*int.*str"):
        task.read_result(b'{"a": "x"}')


def test_task_is_async_only_for_coroutine_functions() -> None:
    def plain() -> None: ...

    assert define(resize).is_async
    assert not define(plain).is_async


# on_worker_lost and isolation


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"on_worker_lost": "ignore"}, 'on_worker_lost is "retry", "fail", "cancel" or a function'),
        ({"on_worker_lost": None}, "on_worker_lost is"),
        ({"max_crashes": 0}, "at least 1"),
        ({"max_crashes": 1.5}, "whole number"),
        ({"max_crashes": True}, "whole number"),
        ({"visibility_timeout": 0}, "visibility_timeout must be above 0"),
        ({"visibility_timeout": float("nan")}, "visibility_timeout must be above 0"),
        ({"visibility_timeout": float("inf")}, "visibility_timeout must be above 0"),
        ({"visibility_timeout": 5, "timeout": 6}, "make visibility_timeout longer"),
        ({"isolation": "thread"}, 'isolation is "process", or None'),
    ],
)
def test_task_policy_invalid_crash_option_is_refused_with_reason(
    wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(DefinitionError, match=why):
        TaskPolicy(**wrong)


def test_task_and_flow_task_options_become_the_policy() -> None:
    def decide(loss: rota.LostJob) -> Literal["fail"]:
        return "fail"

    app = rota.Rota("postgresql://nowhere")
    app.task(
        name="a",
        on_worker_lost=decide,
        max_crashes=5,
        visibility_timeout=timedelta(minutes=1),
        timeout=60,
    )(print_it)
    policy = app.registry.tasks["a"].policy
    assert policy == TaskPolicy(
        on_worker_lost=decide, max_crashes=5, visibility_timeout=60.0, timeout=60.0
    )
    flow = app.flow("f")
    flow.task(
        name="a", on_worker_lost="cancel", max_crashes=1, visibility_timeout=2, isolation="process"
    )(print_it)
    flow.on_failure(name="b", on_worker_lost="fail")(print_it)
    assert app.registry.tasks["f.a"].policy == TaskPolicy(
        on_worker_lost="cancel", max_crashes=1, visibility_timeout=2.0, isolation="process"
    )
    assert app.registry.tasks["f.b"].policy == TaskPolicy(on_worker_lost="fail")


def print_it() -> None: ...


@pytest.mark.parametrize(
    ("policy", "patient"),
    [
        (TaskPolicy(), True),
        (TaskPolicy(timeout=5, max_crashes=1, retry=Retry(non_retryable=(ValueError,))), True),
        (TaskPolicy(retry=Retry(max_attempts=1)), False),
        (TaskPolicy(on_worker_lost="fail"), False),
        (TaskPolicy(on_worker_lost=lambda loss: "retry"), False),
        (TaskPolicy(retry=Retry(non_retryable=(rota.WorkerLost,))), False),
        (TaskPolicy(retry=Retry(non_retryable=(rota.RotaError,))), False),
        (TaskPolicy(visibility_timeout=5), False),
        (TaskPolicy(isolation="process"), False),
    ],
)
def test_task_prefetchable_only_if_a_lost_job_is_harmless(
    policy: TaskPolicy, patient: bool
) -> None:
    assert policy.prefetchable is patient
