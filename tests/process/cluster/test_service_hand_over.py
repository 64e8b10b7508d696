"""Services after the kill of an instance: the survivor keeps them and hands none over to the dead one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.queries import until
from support.service_instances import ServiceInstances

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SERVICES = ["filings", "halts", "articles", "research"]

# The default values divided by four. A killed instance stays listed long after balancing may begin.
BALANCING = {
    "BEAT_SECONDS": 0.5,
    "LEASE_SECONDS": 6.0,
    "HAND_OVER_PAUSE_SECONDS": 1.0,
    "PRESENT_SECONDS": 0.75,
}


@pytest.fixture
def fleet(tmp_path: Path, rota_dsn: str) -> Iterator[ServiceInstances]:
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute(
            "create table effects (service text, iteration bigint, term bigint, pid int)"
        )
    fleet = ServiceInstances(tmp_path, rota_dsn, services=SERVICES, takes=0.02, balancing=BALANCING)
    yield fleet
    fleet.close()


async def test_services_survivor_of_two_instances_keeps_all(
    fleet: ServiceInstances, rota_dsn: str, db: psycopg.AsyncConnection[Any]
) -> None:
    async def ask(query: str) -> list[Any]:
        return await (await db.execute(query.encode())).fetchall()

    async def leaders() -> dict[str, tuple[int, int]]:
        rows = await ask("select name, pid, term from rota.leaders where instance is not null")
        return {name: (pid, term) for name, pid, term in rows}

    async def loads() -> list[int]:
        pids = [pid for pid, _ in (await leaders()).values()]
        return sorted(pids.count(each.pid) for each in fleet.living)

    async def is_shared() -> bool:
        return await loads() == [2, 2]

    async def has_all() -> bool:
        return await loads() == [4]

    async def is_forgotten() -> bool:
        """True if the row of the dead instance has expired, so that no service can be handed over to it."""
        rows = await ask("select count(*) from rota.instances where expires > rota.clock()")
        return rows == [(1,)]

    fleet.start(2)
    await until(is_shared, within=60)
    victim, survivor = fleet.living
    fleet.kill(victim)
    await until(has_all, within=60)
    taken = await leaders()
    await until(is_forgotten, within=60)

    assert await leaders() == taken
    assert {pid for pid, _ in taken.values()} == {survivor.pid}
