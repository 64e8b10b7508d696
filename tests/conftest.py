"""What every test may use, beyond the fixtures of `rota.testing.plugin`.

Tests are run as if nothing were set: variables that would change how Rota behaves are taken out, except
those that say which PostgreSQL the tests are to use.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Generator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

KEPT = {"ROTA_TEST_DATABASE_URL", "ROTA_TESTS_REQUIRE_ALL", "ROTA_PG_BIN"}


def pytest_configure() -> None:
    for name in list(os.environ):
        if (name.startswith("ROTA_") and name not in KEPT) or name == "DATABASE_URL":
            del os.environ[name]


@pytest.fixture
async def db(rota_dsn: str) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
    """A plain connection to the test's database, in autocommit, for looking and for meddling."""
    async with await psycopg.AsyncConnection.connect(rota_dsn, autocommit=True) as connection:
        yield connection


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where every part must be there (in CI), a test that is skipped for want of one has failed."""
    report = yield
    if report.skipped and os.environ.get("ROTA_TESTS_REQUIRE_ALL") == "1":
        report.outcome = "failed"
    return report
