"""Spans of isolated tasks belong to the trace of the job."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota import Rota
from rota.engine.telemetry import span_names
from rota.testing import Harness

from . import tasks
from .seen import Seen, id_of, said_of, trace_of


@pytest.fixture
async def app(rota_dsn: str) -> AsyncIterator[Rota]:
    async with Harness(tasks.app, rota_dsn) as harness:
        yield harness.app


async def test_code_in_a_process_is_where_its_attempt_is(app: Rota, seen: Seen) -> None:
    async with app.worker():
        awaited = await (await tasks.awaited.start()).result(timeout=60)
        plain = await (await tasks.plain.start()).result(timeout=60)

    assert seen.tree() == "start awaited\n  run awaited\nstart plain\n  run plain"
    for name, found in (("run awaited", awaited), ("run plain", plain)):
        attempt = seen.one(name)
        assert found == [f"{trace_of(attempt):x}", f"{id_of(attempt):x}"]
        assert said_of(attempt, span_names.OUTCOME) == "succeeded"


async def test_without_a_provider_it_is_nowhere(app: Rota) -> None:
    async with app.worker():
        assert await (await tasks.nowhere.start()).result(timeout=60) is False
