"""`options(…)`: options of a start, and their combination over several calls."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import ArgumentError, Retry, Rota

app = Rota("postgresql://localhost/nowhere")
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@app.task
async def resize(path: str) -> None: ...


etl = app.flow("etl")


@etl.task
async def extract(day: str) -> None: ...


def how(task: Any) -> dict[str, Any]:
    """Return the options that differ from those of `resize`."""
    return {
        name: value
        for name in task._options.__slots__
        if (value := getattr(task._options, name)) != getattr(resize._options, name)
    }


def test_what_was_said_before_goes_on_to_hold() -> None:
    both = resize.options(key="a", unique="open", timeout=3).options(
        delay=5, retry=Retry(max_attempts=2)
    )
    assert how(both) == {
        "key": "a",
        "unique_open": True,
        "delay": timedelta(seconds=5),
        "job_options": {"timeout": 3.0, "retry": Retry(max_attempts=2).to_dict()},
    }
    assert how(etl.options(priority=3).options(key="b")) == {"priority": 3, "key": "b"}


def test_what_is_said_anew_is_what_goes() -> None:
    assert how(resize.options(delay=5).options(at=NOON)) == {"at": NOON}
    assert how(resize.options(expires=NOON).options(expires=60)) == {
        "expires_in": timedelta(seconds=60)
    }
    assert how(resize.options(key="a", unique=60).options(key="b")) == {"key": "b"}


def test_how_long_a_key_counts_may_be_said_later() -> None:
    assert how(resize.options(key="a").options(unique="open")) == {"key": "a", "unique_open": True}
    with pytest.raises(ArgumentError, match="needs a key: pass key="):
        resize.options(unique="open")


def test_the_task_itself_is_as_it_was() -> None:
    resize.options(key="a")
    assert how(resize) == {}


def test_types_that_could_not_be_kept_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"set non_retryable with @app\.task"):
        resize.options(retry=Retry(non_retryable=(ValueError,)))


def test_a_task_goes_by_the_name_of_its_function_among_decorators() -> None:
    assert (resize.__name__, resize.__module__) == ("resize", __name__)
    assert list(inspect.signature(resize).parameters) == ["path"]
