"""Hints for method names of other libraries."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota

app = Rota("postgresql://nowhere")
flow: Any = app.flow("etl")


@app.task
async def resize(path: str) -> None: ...


task: Any = resize


@pytest.mark.parametrize("name", ["delay", "apply_async", "enqueue", "defer", "send", "submit"])
def test_task_attribute_named_as_in_peers_hints_at_start(name: str) -> None:
    with pytest.raises(
        AttributeError, match=r"`await task\.start\(…\)`, or `task\.sync\.start\(…\)`"
    ):
        getattr(task, name)
    with pytest.raises(AttributeError, match=r"`await flow\.start\(…\)`"):
        getattr(flow, name)


def test_task_unknown_attribute_gives_no_hint() -> None:
    with pytest.raises(AttributeError, match=r"'Task' object has no attribute 'resizee'$"):
        _ = task.resizee
    assert not hasattr(task, "__deepcopy__")
