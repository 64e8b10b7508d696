"""Fixtures for all tests, beyond those of `rota.testing.plugin`.

Tests run without any setting: variables that change Rota's behaviour are removed, except those that select
the PostgreSQL server for the tests.

With ROTA_TEST_POOLER=1 Rota connects through a PgBouncer in transaction mode. Tests inspect and change the
database on a direct connection.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import hypothesis
import psycopg
import pytest
from psycopg import AsyncConnection

from rota.testing.server import DatabaseServer
from support.owned_clock import ClockedRota
from support.pgbouncer import run_pgbouncer
from support.scale import scale

# `make test` uses the same examples every time; `make proofs` searches for new ones.
hypothesis.settings.register_profile(
    "rota", deadline=None, max_examples=50, derandomize=scale(True, False)
)
hypothesis.settings.load_profile("rota")

KEPT = {
    "ROTA_PG_BIN",
    "ROTA_TESTS_REQUIRE_ALL",
    "ROTA_TEST_DATABASE_URL",
    "ROTA_TEST_LARGE_DSN",
    "ROTA_TEST_LONG",
    "ROTA_TEST_POOLER",
}


def pytest_configure() -> None:
    for name in list(os.environ):
        if (name.startswith("ROTA_") and name not in KEPT) or name == "DATABASE_URL":
            del os.environ[name]
    if os.environ.get("ROTA_TEST_POOLER") == "1":
        # Through a pooler a worker receives a cancellation with its next heartbeat; a short interval keeps
        # tests fast.
        os.environ["ROTA_HEARTBEAT_INTERVAL"] = "1"


@pytest.fixture(scope="session")
def way(rota_server: DatabaseServer) -> Iterator[Callable[[str], str]]:
    """Return a function from a DSN to the DSN that Rota uses: the same, or one through a pooler."""
    if os.environ.get("ROTA_TEST_POOLER") == "1":
        with run_pgbouncer(rota_server.dsn) as pooler:
            yield pooler.before
    else:
        yield lambda dsn: dsn


@pytest.fixture
def direct_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    """Fresh, migrated database for this test, connected directly."""
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture
def rota_dsn(direct_dsn: str, way: Callable[[str], str]) -> str:
    """The same database, by the DSN that Rota uses."""
    return way(direct_dsn)


@pytest.fixture
async def db(direct_dsn: str) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
    """Direct connection to the test's database, in autocommit, for inspecting and changing it."""
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def clocked_app(rota_dsn: str) -> AsyncIterator[ClockedRota]:
    """App whose lease clock the test advances."""
    async with ClockedRota(rota_dsn, poll_interval=0.1) as app:
        yield app


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a skipped test as failed if all optional parts are required (in CI)."""
    report = yield
    if report.skipped and os.environ.get("ROTA_TESTS_REQUIRE_ALL") == "1":
        report.outcome = "failed"
    return report
