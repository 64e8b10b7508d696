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


def changed_options(task: Any) -> dict[str, Any]:
    """Return the options that differ from those of `resize`."""
    return {
        name: value
        for name in task._options.__slots__
        if (value := getattr(task._options, name)) != getattr(resize._options, name)
    }


def test_options_of_earlier_call_are_kept() -> None:
    both = resize.options(key="a", unique="open", timeout=3).options(
        delay=5, retry=Retry(max_attempts=2)
    )
    assert changed_options(both) == {
        "key": "a",
        "unique_open": True,
        "delay": timedelta(seconds=5),
        "job_options": {"timeout": 3.0, "retry": Retry(max_attempts=2).to_dict()},
    }
    assert changed_options(etl.options(priority=3).options(key="b")) == {"priority": 3, "key": "b"}


def test_options_of_later_call_replace_earlier_ones() -> None:
    assert changed_options(resize.options(delay=5).options(at=NOON)) == {"at": NOON}
    assert changed_options(resize.options(expires=NOON).options(expires=60)) == {
        "expires_in": timedelta(seconds=60)
    }
    assert changed_options(resize.options(key="a", unique=60).options(key="b")) == {"key": "b"}


def test_options_unique_needs_key_from_same_or_earlier_call() -> None:
    assert changed_options(resize.options(key="a").options(unique="open")) == {
        "key": "a",
        "unique_open": True,
    }
    with pytest.raises(ArgumentError, match="needs a key: pass key="):
        resize.options(unique="open")


def test_options_leave_the_task_unchanged() -> None:
    resize.options(key="a")
    assert changed_options(resize) == {}


def test_options_retry_with_non_retryable_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"set non_retryable with @app\.task"):
        resize.options(retry=Retry(non_retryable=(ValueError,)))


def test_task_keeps_name_module_and_signature_of_its_function() -> None:
    assert (resize.__name__, resize.__module__) == ("resize", __name__)
    assert list(inspect.signature(resize).parameters) == ["path"]
