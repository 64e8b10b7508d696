"""Real processes for the tests: apps, their shared server and its watcher."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest

from rota.localpg.postmaster import read
from support.places import PROGRAMS

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

PROGRAM = PROGRAMS / "localpg_app.py"


class App:
    """Process of app.py."""

    def __init__(
        self,
        directory: Path,
        *,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
        **options: str,
    ) -> None:
        words = [f"{name}={value}" for name, value in options.items()]
        identity: dict[str, Any] = {}
        if user is not None:
            identity = {"user": user, "group": user, "extra_groups": []}
        self._process = subprocess.Popen(
            [python, str(PROGRAM), str(directory), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, **(env or {})},
            start_new_session=True,
            **identity,
        )
        self.pid = self._process.pid
        self._asked = False

    def hear(self) -> str:
        return self._stdout.readline().strip()

    def asking(self) -> App:
        """Wait until it is about to start the server."""
        if not self._asked:
            assert self.hear() == "asking"
            self._asked = True
        return self

    def started(self) -> str:
        """Wait for its DSN."""
        dsn = self.asking().hear()
        assert dsn.startswith("postgresql://"), dsn
        return dsn

    def tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        self.tell("stop")
        assert self.hear() == "stopped"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def interrupt(self) -> None:
        """Send SIGINT to its whole process group, as Ctrl-C in its terminal does."""
        os.killpg(self.pid, signal.SIGINT)

    def close(self) -> None:
        self.kill()
        self._stdout.close()
        if self._process.stdin:
            self._process.stdin.close()

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout
        return self._process.stdout


def wait_until(happened: Callable[[], object], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {within} s"
        time.sleep(0.01)


def server_pid(directory: Path) -> int:
    server = read(directory)
    assert server, f"no server in {directory}"
    return server.pid


def fetch_value(dsn: str, question: str) -> object:
    with psycopg.connect(dsn, autocommit=True, connect_timeout=60) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row[0] if row else None


def execute_sql(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True, connect_timeout=60) as connection:
        connection.execute(statement.encode())


def processes(directory: Path) -> dict[int, str]:
    """Return the servers, watchers and initdb processes of this directory."""
    about_it = re.compile(rf"{re.escape(str(directory))}\b")
    return {
        pid: command
        for pid, command in _commands()
        if about_it.search(command) and str(PROGRAM) not in command
    }


def _commands() -> Iterator[tuple[int, str]]:
    if sys.platform == "linux":
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_text().replace("\0", " ")
    else:
        listing = subprocess.check_output(["/bin/ps", "-axww", "-o", "pid=,args="], text=True)
        for line in listing.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command


def has_no_processes(directory: Path) -> bool:
    return not processes(directory)


def watcher_pid(directory: Path) -> int:
    (pid,) = [pid for pid, command in processes(directory).items() if "watcher.py" in command]
    return pid
