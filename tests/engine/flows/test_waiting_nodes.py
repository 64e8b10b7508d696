"""Nodes of a flow that only wait: for a time or for a signal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota import Rota
from rota.errors import DefinitionError, RunFailed
from rota.model.events import JobSuspended
from rota.testing import Harness
from support.queries import equals, until


async def test_flow_sleep_node_holds_no_slot_and_resumes_when_due(rota_harness: Harness) -> None:
    app = rota_harness.app
    flow = app.flow("bread")
    baked = []

    @flow.task
    async def bake(loaf: str) -> str:
        baked.append(loaf)
        return loaf

    cool = flow.sleep("cool", timedelta(days=30), after=[bake])

    @flow.task(after=[cool])
    async def slice(bake: str) -> str:
        return f"{bake} in slices"

    async with app.worker(concurrency=1) as worker:
        run = await flow.start(loaf="rye")
        await rota_harness.wait_for_event(JobSuspended, task="bread.cool")
        await until(lambda: _is_idle(worker))
        await rota_harness.clock.advance(timedelta(days=30))
        assert await run.result(timeout=60) == {"slice": "rye in slices"}
    assert baked == ["rye"]


async def _is_idle(worker: Any) -> bool:
    return not worker.session.slots.running


async def test_flow_wait_signal_node_passes_payload_to_successor(
    rota_app: Rota, rota_dsn: str
) -> None:
    flow = rota_app.flow("order")

    @flow.task
    async def reserve(item: str) -> str:
        return item

    flow.wait_signal("approval", type=bool, after=[reserve])

    @flow.task
    async def ship(reserve: str, approval: bool) -> str:
        return f"{reserve}: {approval}"

    async with rota_app.worker():
        run = await flow.start(item="book")
        await until(lambda: equals(rota_dsn, "select count(*) from rota.sleeping", 1))
        assert await run.signal("approval", True)
        assert await run.result(timeout=60) == {"ship": "book: True"}


async def test_flow_wait_signal_node_receives_earlier_signal(rota_app: Rota) -> None:
    flow = rota_app.flow("order")
    flow.wait_signal("approval", signal="ok", type=int)

    @flow.task
    async def ship(approval: int) -> int:
        return approval + 1

    run = await flow.start()
    assert await run.signal("ok", 41)
    async with rota_app.worker():
        assert await run.result(timeout=60) == {"ship": 42}


async def test_flow_wait_signal_node_timeout_fails_or_returns_default(
    rota_harness: Harness,
) -> None:
    app = rota_harness.app
    strict, easy = app.flow("strict"), app.flow("easy")
    strict.wait_signal("approval", timeout=timedelta(days=2))
    easy.wait_signal("approval", type=int, timeout=timedelta(days=2), default=7)
    runs = [await strict.start(), await easy.start()]
    async with app.worker():
        await rota_harness.wait_for_event(JobSuspended, task="strict.approval")
        await rota_harness.wait_for_event(JobSuspended, task="easy.approval")
        await rota_harness.clock.advance(timedelta(days=2, minutes=1))
        with pytest.raises(RunFailed, match="signal 'approval' did not arrive before the timeout"):
            await runs[0].result(timeout=60)
        assert await runs[1].result(timeout=60) == {"approval": 7}


def test_flow_wait_node_invalid_definition_is_refused(rota_app: Rota) -> None:
    flow = rota_app.flow("order")
    with pytest.raises(DefinitionError, match="needs no default"):
        flow.wait_signal("approval", default=1)
    with pytest.raises(DefinitionError, match="0 or more"):
        flow.sleep("back", -1, after=[])
