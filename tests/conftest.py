"""What every test may use, beyond the fixtures of `rota.testing.plugin`.

Tests are run as if nothing were set: variables that would change how Rota behaves are taken out, except
those that say which PostgreSQL the tests are to use.

With ROTA_TEST_POOLER=1 all that Rota does goes through a PgBouncer in transaction mode, and what a test
does to look and to meddle does not.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from phases import ALONE, CROWD, PROOFS
from pooler.bouncer import bouncer
from rota.testing.server import DatabaseServer

KEPT = {
    "ROTA_PG_BIN",
    "ROTA_TESTS_REQUIRE_ALL",
    "ROTA_TEST_DATABASE_URL",
    "ROTA_TEST_LARGE_DSN",
    "ROTA_TEST_LONG",
    "ROTA_TEST_POOLER",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("ROTA_TEST_LONG") != "1":
        items[:] = [item for item in items if not item.nodeid.startswith(PROOFS)]
    for item in items:
        if {"browser", "floor"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.browser)
        elif item.nodeid.startswith(CROWD):
            item.add_marker(pytest.mark.crowd)
        elif item.nodeid.startswith(ALONE):
            item.add_marker(pytest.mark.alone)


def pytest_configure() -> None:
    for name in list(os.environ):
        if (name.startswith("ROTA_") and name not in KEPT) or name == "DATABASE_URL":
            del os.environ[name]
    if os.environ.get("ROTA_TEST_POOLER") == "1":
        # A wish to cancel is heard with the next beat there, and tests do not wait that long for one.
        os.environ["ROTA_HEARTBEAT_INTERVAL"] = "1"


@pytest.fixture(scope="session")
def way(rota_server: DatabaseServer) -> Iterator[Callable[[str], str]]:
    """How Rota is to reach a database: as it is, or through a pooler."""
    if os.environ.get("ROTA_TEST_POOLER") == "1":
        with bouncer(rota_server.dsn) as pooler:
            yield pooler.before
    else:
        yield lambda dsn: dsn


@pytest.fixture
def direct_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    """A fresh, migrated database for this test, with nothing in between."""
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture
def rota_dsn(direct_dsn: str, way: Callable[[str], str]) -> str:
    """The same database, the way Rota is to reach it."""
    return way(direct_dsn)


@pytest.fixture
async def db(direct_dsn: str) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
    """A plain connection to the test's database, in autocommit, for looking and for meddling."""
    async with await psycopg.AsyncConnection.connect(direct_dsn, autocommit=True) as connection:
        yield connection


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where every part must be there (in CI), a test that is skipped for want of one has failed."""
    report = yield
    if report.skipped and os.environ.get("ROTA_TESTS_REQUIRE_ALL") == "1":
        report.outcome = "failed"
    return report
