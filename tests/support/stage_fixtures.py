"""One database for all tests of this folder, emptied before each test.

A copy of the database for each test would take longer than the tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from rota.testing.server import DatabaseServer
from support.elections import Election, open_election
from support.stage import EMPTY, Stage


@pytest.fixture(scope="session")
def store_dsn(rota_server: DatabaseServer, way: Callable[[str], str]) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield way(dsn)


@pytest.fixture
async def stage(store_dsn: str) -> AsyncIterator[Stage]:
    """Stage in the shared database."""
    async for each in _stage(store_dsn):
        yield each


@pytest.fixture
async def own_stage(rota_dsn: str) -> AsyncIterator[Stage]:
    """Stage in its own database, for tests that change more than rows."""
    async for each in _stage(rota_dsn):
        yield each


@pytest.fixture
async def stopped_clock(stage: Stage) -> AsyncIterator[None]:
    """Let the clock of the shared database stand still during the test."""
    definition = await stage.one("select pg_get_functiondef('rota.clock'::regproc)")
    now = await stage.one("select rota.clock()::text")
    await stage.sql(
        "create or replace function rota.clock() returns timestamptz language sql stable parallel safe"
        f" as $$ select timestamptz '{now}' $$"
    )
    yield
    await stage.sql(definition)


async def _stage(dsn: str) -> AsyncIterator[Stage]:
    stage = Stage(dsn)
    await stage.open()
    try:
        await stage.sql(EMPTY)
        yield stage
        await stage.check()
    finally:
        await stage.close()


@pytest.fixture(scope="session")
def election_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture
async def election(election_dsn: str) -> AsyncIterator[Election]:
    """Election without a leader, on connections without a pooler."""
    async with open_election(election_dsn) as polls:
        await polls.clear()
        yield polls
