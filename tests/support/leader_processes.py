"""Processes that are candidates for leader and note when they lead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.leader_candidates import APP, PATH
from support.leader_checks import Notes

NAME = "housekeeping"
LEASE = 1.5
Start = Callable[[str], tuple["subprocess.Popen[bytes]", Notes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that is a candidate and notes when it considers itself leader."""
    started = []

    def start(dsn: str) -> tuple[subprocess.Popen[bytes], Notes]:
        notes = Notes(tmp_path / "notes", "other")
        order = {
            "dsn": dsn,
            "instance": "other",
            "name": NAME,
            "lease": LEASE,
            "notes": str(notes.path),
        }
        process = subprocess.Popen(
            [sys.executable, str(APP), json.dumps(order)],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": PATH},
        )
        started.append(process)
        return process, notes

    yield start
    for process in started:
        process.kill()
        process.wait()


def has_acted(notes: Notes) -> bool:
    notes.read()
    return bool(notes.reigns)
