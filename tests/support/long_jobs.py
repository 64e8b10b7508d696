"""Processes that run long jobs, and the notes of these jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

from support.server_process import ServerProcess, wait_until

COMMANDS = {
    "serve": ["rota", "serve", "lengthy_api:api", "--port", "{port}"],
    "worker": ["rota", "worker", "lengthy:app", "-q", "default"],
}


def run_sql(dsn: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        asked = connection.execute(question.encode())
        return asked.fetchall() if asked.description is not None else []


def wait_until_worker_runs(instance: ServerProcess) -> ServerProcess:
    """Wait until the worker runs."""
    wait_until(lambda: "jobs at once" in instance.said, instance)
    return instance


def read_notes(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def problem_lines(instance: ServerProcess) -> list[str]:
    """Return the log lines that report a problem."""
    bad = r"pool|closed|Traceback|Error\b|never retrieved|never awaited|\b(?:warning|error|critical)\b"
    return [line for line in instance.said.splitlines() if re.search(bad, line)]
