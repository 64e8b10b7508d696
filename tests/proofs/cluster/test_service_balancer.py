"""Services spread over processes: evenly, quickly, and stable afterwards.

For `make proofs`; `make test` has tests/engine/coord/test_service_balancer.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.service_instances import ServiceInstances, now

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SERVICES = [f"monitor-{number}" for number in range(6)]
STAY = 20.0


@pytest.fixture
def fleet(tmp_path: Path, rota_dsn: str) -> Iterator[ServiceInstances]:
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute(
            "create table effects (service text, iteration bigint, term bigint, pid int)"
        )
    fleet = ServiceInstances(tmp_path, rota_dsn, services=SERVICES, every=0.4, takes=0.05)
    yield fleet
    fleet.close()


class LeaderQueries:
    """Queries on the leaders of the services."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def loads(self, fleet: ServiceInstances) -> dict[int, int]:
        """Return how many services each living process runs."""
        counts = Counter(pid for _, pid, _ in await self.rows())
        return {each.pid: counts[each.pid] for each in fleet.living}

    async def rows(self) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
            found = await connection.execute(
                "select name, pid, term from rota.leaders where instance is not null order by name"
            )
            return await found.fetchall()

    async def until_even(self, fleet: ServiceInstances, wanted: list[int], within: float) -> float:
        """Wait until the living processes run these numbers of services; return the seconds it took."""
        began = now()
        loads: dict[int, int] = {}
        while sorted(loads.values()) != wanted:
            if now() - began > within:
                pytest.fail(f"{loads} after {within:g} s, not {wanted}")
            await asyncio.sleep(0.05)
            loads = await self.loads(fleet)
        return now() - began


async def test_services_spread_evenly_and_rebalance_after_a_kill(
    fleet: ServiceInstances, rota_dsn: str
) -> None:
    look = LeaderQueries(rota_dsn)
    fleet.start()
    took = await look.until_even(fleet, [6], within=10)
    fleet.start(2)
    while not fleet.all_are_up:
        await asyncio.sleep(0.02)
    took = await look.until_even(fleet, [2, 2, 2], within=15)
    print(f"two more instances: even after {took:.1f} s")

    await asyncio.sleep(2)
    before = await look.rows()
    await asyncio.sleep(STAY)
    assert await look.rows() == before

    victim = fleet.living[0]
    lost = [name for name, pid, _ in before if pid == victim.pid]
    died = fleet.kill(victim)
    took = await look.until_even(fleet, [3, 3], within=15)
    iterations = fleet.look()
    gaps = [
        min(
            each.began
            for each in iterations
            if each.began > died and f"service {each.service}" == name
        )
        - died
        for name in lost
    ]
    print(f"one died: even after {took:.1f} s, gaps {', '.join(f'{gap:.1f}' for gap in gaps)} s")
    assert max(gaps) < 5
    stayed = {name: term for name, _, term in await look.rows() if name not in lost}
    moved = [name for name, _, term in before if name in stayed and stayed[name] != term]
    assert len(moved) <= 1  # the surviving instances keep their services
