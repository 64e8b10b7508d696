"""Spans of isolated tasks belong to the trace of the job."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota import Rota
from rota.engine.telemetry import span_names
from rota.testing import Harness
from support import traced_tasks as tasks
from support.exported_spans import ExportedSpans, attribute_of, id_of, trace_of


@pytest.fixture
async def app(rota_dsn: str) -> AsyncIterator[Rota]:
    async with Harness(tasks.app, rota_dsn) as harness:
        yield harness.app


async def test_isolated_task_runs_in_the_span_of_its_attempt(
    app: Rota, exported: ExportedSpans
) -> None:
    async with app.worker():
        awaited = await (await tasks.awaited.start()).result(timeout=60)
        plain = await (await tasks.plain.start()).result(timeout=60)

    assert exported.tree() == "start awaited\n  run awaited\nstart plain\n  run plain"
    for name, found in (("run awaited", awaited), ("run plain", plain)):
        attempt = exported.one(name)
        assert found == [f"{trace_of(attempt):x}", f"{id_of(attempt):x}"]
        assert attribute_of(attempt, span_names.OUTCOME) == "succeeded"


async def test_isolated_task_without_provider_has_no_span(app: Rota) -> None:
    async with app.worker():
        assert await (await tasks.nowhere.start()).result(timeout=60) is False
