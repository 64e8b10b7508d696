"""`rota demo`, and the example it leads to: they work as they are, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from .terminal import Terminal, eventually

HELLO = Path(__file__).parents[2] / "examples" / "hello.py"


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short name that other users can enter: root cannot run PostgreSQL itself."""
    base = Path(tempfile.mkdtemp(prefix="rota-cli-", dir="/tmp")).resolve()
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def processes(directory: Path) -> list[str]:
    listed = subprocess.run(
        ["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


def working(dsn: str) -> bool:
    """Whether a worker of a demo is at it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            return bool(connection.execute("select from rota_demo.outcomes limit 1").fetchall())
        except psycopg.errors.UndefinedTable:
            return False


def test_the_demo_runs_on_a_database_of_its_own_and_leaves_nothing(home: Path) -> None:
    done = Terminal(None).run("demo", "--jobs", "300", TMPDIR=str(home))

    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == [
        "started",
        "worked",
        "retried",
        "key",
        "latency",
    ]
    assert "300 in" in done.out
    assert "1 run " in done.out
    assert done.out.replace("\n", "").isprintable()
    eventually(lambda: not processes(home))
    assert list(home.iterdir()) == []


def test_two_demos_share_a_database_without_touching_its_own_rows(terminal: Terminal) -> None:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    words = ("demo", "--jobs", "300", "--dsn", dsn)
    with terminal.program(*words) as first, terminal.program(*words) as second:
        ended = [first.ended(60), second.ended(60)]

    for each in ended:
        assert (each.code, each.err) == (0, "")
        assert "worked" in each.out
        assert "stopped early" not in each.out
        assert "schema rota_demo" in each.out
    with psycopg.connect(dsn) as connection:
        for table in ("rota.jobs", "rota_demo.claims"):
            assert connection.execute(f"select from {table}".encode()).fetchall() == []
        left = connection.execute("select state from rota_demo.workers").fetchall()
        assert left == [("stopped",), ("stopped",)]


def test_a_demo_that_is_stopped_says_how_far_it_came(terminal: Terminal) -> None:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    with terminal.program("demo", "--jobs", "30000", "--dsn", dsn) as demo:
        eventually(lambda: working(dsn))

        demo.tell(signal.SIGINT)

        ended = demo.ended()
    assert (ended.code, ended.err) == (0, "")
    assert "stopped early, after" in ended.out
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select from rota_demo.claims").fetchall() == []


def test_a_demo_ends_when_its_time_is_over(terminal: Terminal) -> None:
    dsn = terminal.environment["ROTA_DATABASE_URL"]

    done = terminal.run("demo", "--jobs", "1000000", "--seconds", "1", "--dsn", dsn)

    assert (done.code, done.err) == (0, "")
    assert "stopped early" in done.out


def test_the_smallest_app_greets(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HELLO)],
        env={**os.environ, "ROTA_LOCAL_DIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Hello, Ada!",
        "Hello, Grace!",
        "Hello, Katherine!",
        "1 + 2 + 3 = 6",
    ]
    eventually(lambda: not processes(home))
