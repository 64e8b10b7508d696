"""Database shared by all tests here, emptied before each, and an app that explains its runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import psycopg
import pytest

from rota import Rota
from rota.testing.server import DatabaseServer
from support.explainer import Explainer
from support.stage import EMPTY


@pytest.fixture(scope="session")
def explain_dsn(rota_server: DatabaseServer, way: Callable[[str], str]) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield way(dsn)


@pytest.fixture
async def explainer(explain_dsn: str) -> AsyncIterator[Explainer]:
    async with (
        await psycopg.AsyncConnection.connect(explain_dsn, autocommit=True) as connection,
        Rota(explain_dsn, poll_interval=0.1, heartbeat_interval=0.2, dead_after=20) as app,
    ):
        await connection.execute(EMPTY.encode())
        await connection.execute("delete from rota.locks")
        found = Explainer(app, connection)
        yield found
        found.gate.set()
