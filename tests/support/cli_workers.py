"""Worker commands as processes, and their rows in the database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.terminal import Program, Terminal, eventually

SHOP = ("-a", "shop:app")
SLOWLY = {"ROTA_DRAIN_TIMEOUT": "60"}  # longer than any test waits: an early end was hurried


def fetch_value(terminal: Terminal, question: str) -> object:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row[0] if row else None


def state(terminal: Terminal, run: str) -> object:
    return fetch_value(terminal, f"select state from rota.job_state where run = {int(run)}")


def worker_states(terminal: Terminal) -> object:
    """Return the state of each worker."""
    return fetch_value(
        terminal, "select string_agg(state::text, ' ' order by id) from rota.workers"
    )


def start_waiting(terminal: Terminal, file: Path) -> str:
    """Start a run; return it once its code runs. It ends when the file exists."""
    run = terminal.run("start", *SHOP, "wait_for", f"file={file}").out.strip()
    eventually(Path(f"{file}.began").exists)
    return run


def workers(program: Program, count: int) -> list[int]:
    """Return the pids of `count` workers that have reported that they are up."""
    lines = program.said("jobs at once", times=count)
    return [int(re.findall(r"\[(\d+)\]", line)[0]) for line in lines]


RUNNING = "select name from rota.leaders where instance is not null"


def fetch_rows(terminal: Terminal, question: str) -> list[tuple[Any, ...]]:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


SHOP = ("-a", "shop:app")
SLOWLY = {"ROTA_DRAIN_TIMEOUT": "60"}  # longer than any test waits


@pytest.fixture
def busy(terminal: Terminal, tmp_path: Path) -> Iterator[tuple[Program, str]]:
    """Worker with a job that ends when `go` exists, and the worker's id."""
    with terminal.program("worker", "shop:app", **SLOWLY) as worker:
        worker.said("up to")
        terminal.run("start", *SHOP, "wait_for", f"file={tmp_path / 'go'}")
        eventually((tmp_path / "go.began").exists)
        [listed] = terminal.run("workers", "--json").json()["workers"]
        yield worker, str(listed["worker"])
