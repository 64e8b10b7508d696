"""Fixtures for pytest: loaded wherever Rota is installed, so this imports next to nothing.

    rota_dsn       a fresh, migrated database, dropped after the test
    rota_app       a Rota in it, closed after the test
    rota_harness   that app, with a clock to set and events to wait for
    rota_simulate  runs a durable function with no database at all; for tests that await, and others

The async ones need pytest-asyncio (in either mode) or anyio's plugin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.testing.harness import Harness
    from rota.testing.server import DatabaseServer
    from rota.testing.simulate import Simulate


def _async_fixture(fixture: Callable[..., AsyncIterator[Any]]) -> Any:
    if find_spec("pytest_asyncio"):
        import pytest_asyncio

        return pytest_asyncio.fixture(fixture)
    return pytest.fixture(fixture)


@pytest.fixture(scope="session")
def rota_server() -> Iterator[DatabaseServer]:
    """The server that databases are made in: ROTA_TEST_DATABASE_URL, or a private one."""
    from rota.testing.server import server

    with server() as opened:
        yield opened


@pytest.fixture
def rota_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    """A fresh, migrated database for this test."""
    with rota_server.database() as dsn:
        yield dsn


@_async_fixture
async def rota_app(rota_dsn: str) -> AsyncIterator[Rota]:
    """A Rota in a fresh database. Its workers poll often, so that moving the clock is noticed soon."""
    from rota.app import Rota

    async with Rota(rota_dsn, poll_interval=0.1) as app:
        yield app


@_async_fixture
async def rota_harness(rota_app: Rota) -> AsyncIterator[Harness]:
    """`rota_app`, with a clock to set and events to wait for."""
    from rota.testing.harness import Harness

    async with Harness(rota_app) as harness:
        yield harness


@pytest.fixture
def rota_simulate() -> Simulate:
    """`rota.testing.simulate`: `await rota_simulate(task, …)`, or `rota_simulate.sync(task, …)`."""
    from rota.testing.simulate import simulate

    return simulate
