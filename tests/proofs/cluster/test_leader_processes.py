"""A killed leader behind a pooler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota import Rota
from rota.testing.server import DatabaseServer
from support.leader_helpers import elected, session_lock_pids, until
from support.leader_processes import NAME, Start, has_acted
from support.pgbouncer import PgBouncer, run_pgbouncer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pooler(rota_server: DatabaseServer) -> Iterator[PgBouncer]:
    with run_pgbouncer(rota_server.dsn) as started:
        yield started


async def test_leader_killed_behind_pooler_is_replaced_after_its_lease(
    direct_dsn: str, pooler: PgBouncer, start: Start
) -> None:
    dsn = pooler.before(direct_dsn)
    process, notes = start(dsn)
    await until(lambda: has_acted(notes))
    async with Rota(dsn) as app, app.leader(NAME) as leader:
        process.kill()
        assert (await elected(leader)).number == 2
    assert await session_lock_pids(direct_dsn) == []
