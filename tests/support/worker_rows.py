"""Rows of workers, and the tables that commands print of them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import Any

import psycopg

from support.terminal import Terminal


def insert_worker(
    registry: psycopg.Connection[Any], state: str = "active", **values: object
) -> int:
    """Insert a worker with its last heartbeat `beat` seconds ago; return its id."""
    given = {"host": "web-1", "lag": 0.0, "metadata": "{}", "blamed": None, "version": "", **values}
    row = registry.execute(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, running, state, lag,"
        " metadata, charged_jobs, started, last_beat, ended)"
        " values (%(host)s, 4242, %(version)s, '{default,images}', '{echo}', 50, 3, %(state)s, %(lag)s,"
        " %(metadata)s, %(blamed)s, now() - interval '2 hours', now() - make_interval(secs => %(beat)s),"
        " now() - make_interval(secs => %(ended)s)) returning id",
        {"state": state, "beat": 1, "ended": None, **given},
    ).fetchone()
    assert row
    return int(row[0])


def cells(printed: str) -> list[list[str]]:
    """Return the rows of a table below its heading, cell by cell."""
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()[1:]]


def run_on_terminal(dsn: str, columns: int, *words: str, **more: str) -> str:
    ours, theirs = pty.openpty()
    environment = {**Terminal(dsn).environment, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    subprocess.run(
        [sys.executable, "-m", "rota", *words], stdout=theirs, env=environment | more, check=True
    )
    os.close(theirs)
    printed = os.read(ours, 20_000).decode()
    os.close(ours)
    return printed
