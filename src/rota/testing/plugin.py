"""Fixtures for pytest. The plugin is loaded wherever Rota is installed, so it imports very little.

    rota_dsn       a fresh, migrated database, dropped after the test
    rota_app       a Rota app in it, closed after the test
    rota_harness   that app, with a settable clock and recorded events
    rota_simulate  runs a durable function without a database, in async tests and others

The async fixtures need pytest-asyncio (in either mode) or anyio's plugin.
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
    """Server in which test databases are created: ROTA_TEST_DATABASE_URL, or a private one."""
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
    """A Rota app in a fresh database. Its workers poll often, so that they notice a moved clock soon."""
    from rota.app import Rota

    async with Rota(rota_dsn, poll_interval=0.1) as app:
        yield app


@_async_fixture
async def rota_harness(rota_app: Rota) -> AsyncIterator[Harness]:
    """`rota_app` with a settable clock and recorded events."""
    from rota.testing.harness import Harness

    async with Harness(rota_app) as harness:
        yield harness


@pytest.fixture
def rota_simulate() -> Simulate:
    """Return `rota.testing.simulate`: `await rota_simulate(task, …)`, or `rota_simulate.sync(task, …)`."""
    from rota.testing.simulate import simulate

    return simulate
