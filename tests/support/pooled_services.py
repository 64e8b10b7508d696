"""Service instances that connect through a pooler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from rota.testing.server import DatabaseServer
from support.pgbouncer import PgBouncer, run_pgbouncer
from support.service_instances import ServiceInstances

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
