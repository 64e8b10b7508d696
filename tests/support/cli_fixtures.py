"""Fixtures: the command line in this process and in separate processes.

Creating a database takes longer than most of these tests. They share one database with a running worker;
tests that need an empty database reuse another one, which is truncated before each test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest

from rota.cli import main
from rota.testing.server import DatabaseServer
from support.terminal import APPS, CommandResult, Program, Terminal

Rota = Callable[..., CommandResult]


@pytest.fixture(scope="session")
def shared_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def spare_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def worker(shared_dsn: str) -> Iterator[Program]:
    """Worker on the shared database. It serves all queues but `nobody`."""
    with Terminal(shared_dsn).program("worker", "shop:app") as worker:
        worker.said("up to")
        yield worker


@pytest.fixture(scope="session")
def mill_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def mill(mill_dsn: str) -> Iterator[Program]:
    """Worker for flows on a separate database, for the same queues."""
    with Terminal(mill_dsn).program("worker", "mill:app", "-q", "default", "-q", "search") as mill:
        mill.said("up to")
        yield mill


@pytest.fixture(scope="session")
def failed_flow(mill_dsn: str, mill: Program) -> str:
    """Run of a flow in which one job has failed."""
    words = ("start", "-a", "mill:app", "etl", "day=monday", "broken=true", "--wait")
    return Terminal(mill_dsn).run(*words).out.strip()


@pytest.fixture(scope="session")
def board_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def board(board_dsn: str) -> Iterator[Program]:
    """Worker for durable functions on a separate database."""
    with Terminal(board_dsn).program("worker", "board:app") as board:
        board.said("up to")
        yield board


@pytest.fixture
def rota(
    shared_dsn: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Rota:
    """Run a command line in this process, which is faster than a new process."""
    monkeypatch.setenv("ROTA_DATABASE_URL", shared_dsn)
    monkeypatch.chdir(APPS)
    monkeypatch.syspath_prepend(str(APPS))

    def run(*words: str) -> CommandResult:
        for module in ("shop", "mill", "board", "clock"):
            monkeypatch.delitem(sys.modules, module, raising=False)  # an app keeps its database
        capfd.readouterr()
        code = main.run(list(words))
        out, err = capfd.readouterr()
        return CommandResult(code, out, err)

    return run


@pytest.fixture
def empty_dsn(spare_dsn: str) -> str:
    """Empty database: the previous test's, truncated."""
    with psycopg.connect(spare_dsn, autocommit=True) as connection:
        connection.execute("drop schema if exists rota_demo cascade")
        connection.execute("drop schema if exists second cascade")
        tables = connection.execute(
            "select string_agg(format('%I.%I', schemaname, tablename), ', ') from pg_tables"
            " where schemaname = 'rota' and tablename <> 'migrations'"
        )
        [names] = tables.fetchone() or [""]
        connection.execute(f"truncate {names}".encode())
    return spare_dsn


@pytest.fixture
def empty_rota(rota: Rota, empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Rota:
    """`rota` on an empty database."""
    monkeypatch.setenv("ROTA_DATABASE_URL", empty_dsn)
    return rota


@pytest.fixture
def durable(rota: Rota, board: Program, board_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Rota:
    """`rota` on the database with a worker for durable functions."""
    monkeypatch.setenv("ROTA_DATABASE_URL", board_dsn)
    return rota


@pytest.fixture
def terminal(empty_dsn: str) -> Terminal:
    """Run command lines as processes on an empty database."""
    return Terminal(empty_dsn)
