"""The examples as users run them: real processes, started in the root of the repository."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

from support.places import ROOT, SUPPORT

APPS = SUPPORT / "example_apps"

# Short intervals, so that tests do not wait long for a dead or frozen process.
SOON = {"ROTA_HEARTBEAT_INTERVAL": "0.4", "ROTA_DEAD_AFTER": "1.5", "ROTA_POLL_INTERVAL": "0.2"}


class Program:
    """Process of `python -m …`, with its output in a file."""

    def __init__(self, words: list[str], log: Path, **environment: str) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ROTA_", "PG")) and name != "DATABASE_URL"
        }
        path = os.pathsep.join([f"{APPS}", os.environ.get("PYTHONPATH", "")])
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**inherited, "PYTHONPATH": path, **environment},
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def says(self, pattern: str, within: float = 60) -> re.Match[str]:
        """Wait until the output matches the pattern."""
        deadline = time.monotonic() + within
        while not (found := re.search(pattern, self.said)):
            assert time.monotonic() < deadline, f"never said {pattern!r}, but:\n{self.said}"
            time.sleep(0.02)
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self, within: float = 60) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended(within)

    def ended(self, within: float = 60) -> int:
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {within:g} s:\n{self.said}") from None

    def close(self) -> None:
        """Kill the process and its process group."""
        if self.lives:
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Programs:
    """Several programs on one database, all ended afterwards."""

    def __init__(self, directory: Path, dsn: str, **environment: str) -> None:
        self.directory = directory
        self.dsn = dsn
        self.environment = {"ROTA_DATABASE_URL": dsn, **SOON, **environment}
        self.started: list[Program] = []

    def start(self, *words: str, **environment: str) -> Program:
        log = self.directory / f"log-{len(self.started)}"
        program = Program(list(words), log, **{**self.environment, **environment})
        self.started.append(program)
        return program

    def run(self, *words: str) -> str:
        """Run a program until it ends successfully; return its output."""
        program = self.start(*words)
        assert program.ended(60) == 0, program.said
        return program.said

    @cached_property
    def _looking(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.dsn, autocommit=True)

    def rows(self, query: str, *params: Any) -> list[Any]:
        return self._looking.execute(query.encode(), params).fetchall()

    def until(self, happened: Callable[[], object], within: float = 60) -> None:
        deadline = time.monotonic() + within
        while not happened():
            assert time.monotonic() < deadline, f"not within {within:g} s; they said:\n{self.said}"
            time.sleep(0.05)

    @property
    def said(self) -> str:
        return "\n".join(f"{each.pid}: {each.said}" for each in self.started)

    def close(self) -> None:
        self._looking.close()
        for each in self.started:
            each.close()
