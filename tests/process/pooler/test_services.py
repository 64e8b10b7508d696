"""Services behind a pooler: the running instance holds a lease, and after a crash it must expire first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from rota.testing.server import DatabaseServer
from support.pgbouncer import PgBouncer, run_pgbouncer
from support.service_instances import ServiceInstances, gaps, misnumbered, now, overlaps

pytestmark = pytest.mark.slow

LEASE = 2.0


@pytest.fixture(scope="module")
def pooler(rota_server: DatabaseServer) -> Iterator[PgBouncer]:
    with run_pgbouncer(rota_server.dsn) as pooler:
        yield pooler


@pytest.fixture
def fleet(tmp_path: Path, direct_dsn: str, pooler: PgBouncer) -> Iterator[ServiceInstances]:
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        connection.execute(
            "create table effects (service text, iteration bigint, term bigint, pid int)"
        )
    fleet = ServiceInstances(
        tmp_path, pooler.before(direct_dsn), lease=LEASE, every=0.3, takes=0.1, services=["monitor"]
    )
    yield fleet
    fleet.close()


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
    assert fleet.look()[-1].began - left < 2
    # A second signal during its shutdown would meet no handler.
    assert await asyncio.to_thread(runner.process.wait, 10) == 0
    assert set(fleet.stop()) == {0}
