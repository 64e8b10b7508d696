"""Options that are declared once: an unknown one is reported with a suggestion, and signatures list all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.app.flow import Flow
from rota.app.schedules import Schedules
from rota.app.task import Task


@pytest.fixture
def app() -> rota.Rota:
    return rota.Rota("postgresql://nowhere")


def work() -> None: ...


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda app: app.task(quue="mail"),
            "Rota.task() takes no option 'quue'; did you mean 'queue'?",
        ),
        (lambda app: app.task(nme="a"), "Rota.task() takes no option 'nme'; did you mean 'name'?"),
        (
            lambda app: app.task(work, tiemout=3),
            "takes no option 'tiemout'; did you mean 'timeout'?",
        ),
        (
            lambda app: app.flow("f").task(aftr=[]),
            "no option 'aftr'; did you mean 'after'?",
        ),
        (
            lambda app: app.flow("f").on_failure(isolate=1),
            "no option 'isolate'; did you mean 'isolation'?",
        ),
        (
            lambda app: app.flow("f").options(keys="a"),
            "no option 'keys'; did you mean 'key'?",
        ),
        (
            lambda app: app.task(work).options(delai=3),
            "takes no option 'delai'; did you mean 'delay'?",
        ),
        (
            lambda app: app.task(work).sync.options(delai=3),
            "no option 'delai'; did you mean 'delay'?",
        ),
        (
            lambda app: app.schedule(evry=3),
            "schedule() takes no option 'evry'; did you mean 'every'?",
        ),
        (lambda app: app.schedule(crn="* * * * *"), "takes no option 'crn'; did you mean 'cron'?"),
        (
            lambda app: app.action("report", color="red"),
            "action() takes no option 'color'; it takes queue, priority, retry, timeout, type",
        ),
    ],
)
def test_unknown_option_raises_with_suggestion(
    app: rota.Rota, call: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(TypeError) as raised:
        call(app)
    assert message in str(raised.value)


def test_lock_positional_option_raises(app: rota.Rota) -> None:
    options: list[Any] = [30]
    with pytest.raises(TypeError, match="positional"):
        app.lock("invoices", *options)


async def test_schedule_create_unknown_option_raises_with_suggestion(app: rota.Rota) -> None:
    misspelled: dict[str, Any] = {"overlp": "skip"}
    with pytest.raises(
        TypeError, match=r"Schedules\.create\(\) takes no option 'overlp'; did you mean 'overlap'"
    ):
        await app.schedules.create("daily", "report", **misspelled)


@pytest.mark.parametrize(
    ("function", "name", "default"),
    [
        (rota.Rota.task, "queue", "default"),
        (rota.Rota.task, "max_crashes", 3),
        (Flow.task, "skip_if", None),
        (Flow.on_failure, "on_worker_lost", "retry"),
        (Flow.options, "unique", "always"),
        (Task.options, "retry", None),
        (rota.Rota.schedule, "catch_up", "latest"),
        (rota.Rota.action, "priority", 0),
        (Schedules.create, "tz", "UTC"),
    ],
)
def test_signature_shows_option_with_its_default(
    function: Callable[..., Any], name: str, default: object
) -> None:
    parameter = inspect.signature(function).parameters[name]
    assert (parameter.kind, parameter.default) == (inspect.Parameter.KEYWORD_ONLY, default)
    assert isinstance(parameter.annotation, str)
