"""A killed service instance behind a pooler."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from support.pooled_services import LEASE
from support.service_instances import ServiceInstances, gaps, misnumbered, now, overlaps

pytestmark = pytest.mark.slow


async def test_service_killed_behind_pooler_is_replaced_after_its_lease(
    fleet: ServiceInstances, direct_dsn: str
) -> None:
    fleet.start(2)
    async with asyncio.timeout(60):
        while len(fleet.look()) < 3 or not fleet.all_are_up:
            await asyncio.sleep(0.02)
    with psycopg.connect(direct_dsn) as connection:
        [expires] = connection.execute("select expires from rota.leaders").fetchone() or [None]
        assert expires is not None  # a lease, not a session lock
    victim = fleet.runner()
    assert victim is not None
    kill = (victim.pid, fleet.kill(victim))
    async with asyncio.timeout(60):
        while fleet.look()[-1].pid == victim.pid:
            await asyncio.sleep(0.02)
    [gap] = gaps(fleet.look(), [kill])
    print(f"elsewhere after {gap:.2f} s")
    assert gap < LEASE + 2
    assert fleet.stop() == [0]
    iterations = fleet.look()
    assert not [*overlaps(iterations, dict([kill]), now()), *misnumbered(iterations)]
