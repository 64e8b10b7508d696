"""Services behind a pooler: the running instance holds a lease, and after a crash it must expire first."""

from __future__ import annotations

import asyncio
import math

import pytest

from support.scale import scale
from support.service_instances import ServiceInstances, now

pytestmark = pytest.mark.slow


async def test_service_stopped_behind_pooler_is_replaced_within_two_seconds(
    fleet: ServiceInstances, direct_dsn: str
) -> None:
    fleet.start(2)
    async with asyncio.timeout(60):
        while len(fleet.look()) < 3 or not fleet.all_are_up:
            await asyncio.sleep(0.02)
    runner = fleet.runner()
    assert runner is not None
    left = now()
    runner.process.terminate()
    async with asyncio.timeout(60):
        while fleet.look()[-1].pid == runner.pid:
            await asyncio.sleep(0.02)
    assert fleet.look()[-1].began - left < scale(math.inf, 2)
    # A second signal during its shutdown would meet no handler.
    assert await asyncio.to_thread(runner.process.wait, 60) == 0
    assert set(fleet.stop()) == {0}
