"""Command line in real processes, with the database in their environment."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.places import SUPPORT

APPS = SUPPORT / "cli_apps"


@dataclass(frozen=True)
class CommandResult:
    """Result of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """Return the only line on stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("rota: "), self.err
        return lines[0].removeprefix("rota: ")

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class Program:
    """Command that is running."""

    def __init__(self, words: tuple[str, ...], environment: Mapping[str, str], cwd: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rota", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            with self._more:
                self._lines.append(line)
                self._more.notify_all()

    def said(self, words: str, times: int = 1) -> list[str]:
        """Wait until `times` lines on stderr contain `words`."""

        def heard() -> list[str]:
            return [line for line in self._lines if words in line]

        with self._more:
            enough = self._more.wait_for(lambda: len(heard()) >= times, timeout=60)
            assert enough, f"never said {words!r} {times} times, but:\n{''.join(self._lines)}"
            return heard()

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self, within: float = 60) -> CommandResult:
        """Wait until the process ends."""
        code = self._process.wait(within)
        self._reader.join()
        assert self._process.stdout
        return CommandResult(code, self._process.stdout.read(), "".join(self._lines))

    def close(self) -> None:
        """Kill the process and its children, also after a failed test."""
        for pid in [*children_of(self.pid), self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout
        assert self._process.stderr
        self._process.stdout.close()
        self._process.stderr.close()


class Terminal:
    def __init__(self, dsn: str | None, cwd: Path = APPS) -> None:
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ROTA_", "PG")) and name != "DATABASE_URL"
        }
        if dsn is not None:
            self.environment["ROTA_DATABASE_URL"] = dsn
        self._cwd = cwd

    def run(self, *words: str, stdin: str = "", **environment: str) -> CommandResult:
        done = subprocess.run(
            [sys.executable, "-m", "rota", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.environment, **environment},
            cwd=self._cwd,
            timeout=60,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def program(self, *words: str, **environment: str) -> Iterator[Program]:
        program = Program(words, {**self.environment, **environment}, self._cwd)
        try:
            yield program
        finally:
            program.close()


def run_on_terminal(dsn: str, columns: int, *words: str, **more: str) -> str:
    """Return the output on a terminal with `columns` columns, without colours."""
    ours, theirs = pty.openpty()
    environment = {**Terminal(dsn).environment, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    subprocess.run(
        [sys.executable, "-m", "rota", *words], stdout=theirs, env=environment | more, check=True
    )
    os.close(theirs)
    printed = b""
    with suppress(OSError):  # Linux reports the end of a pty as an error
        while read := os.read(ours, 20_000):
            printed += read
    os.close(ours)
    return re.sub(r"\x1b\[[\d;]*m", "", printed.decode()).replace("\r\n", "\n")


def eventually(happened: Callable[[], object], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {within} s"
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def is_alive(pid: int) -> bool:
    listed = subprocess.run(
        ["ps", "-p", str(pid), "-o", "stat="], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()[:1] not in ("", "Z")
