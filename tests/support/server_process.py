"""Web servers in real processes, and requests to them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.places import SUPPORT

APPS = SUPPORT / "web_apps"


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@dataclass(frozen=True)
class Answer:
    status: int
    closes: bool
    body: Any


class ServerProcess:
    """Command that serves on a port of 127.0.0.1. Placeholders such as `--port {port}` are filled in."""

    def __init__(
        self, words: list[str], dsn: str, log: Path, port: str = "", **environment: str
    ) -> None:
        self.port = int(port or free_port())
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ROTA_", "PG")) and name != "DATABASE_URL"
        }
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *(word.format(port=self.port) for word in words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={
                    **inherited,
                    "ROTA_DATABASE_URL": dsn,
                    "PYTHONPATH": os.pathsep.join([str(APPS), os.environ.get("PYTHONPATH", "")]),
                    **environment,
                },
                cwd=APPS,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Send a request on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            return send_request(connection, path, method, **headers)
        finally:
            connection.close()

    def accepts(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=60).close()
            return True
        return False

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.said
        try:
            return self.ask("/health/ready").status == 200
        except OSError:
            return False

    def up(self) -> ServerProcess:
        wait_until(self.is_ready, self)
        return self

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, within: float = 60) -> int:
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {within:g} s:\n{self.said}") from None

    def close(self) -> None:
        """Kill the process and its children, also after a failed test."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def send_request(
    connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str
) -> Answer:
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    closes = response.getheader("connection", "").lower() == "close"
    is_json = response.getheader("content-type", "").startswith("application/json")
    return Answer(response.status, closes, json.loads(body) if is_json else body)


def wait_until(happened: Callable[[], object], instance: ServerProcess, within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not happened():
        assert time.monotonic() < deadline, f"not within {within:g} s; it said:\n{instance.said}"
        time.sleep(0.01)


@contextmanager
def serving(
    words: list[str], dsn: str, directory: Path, **environment: str
) -> Iterator[ServerProcess]:
    instance = ServerProcess(words, dsn, directory / "log", **environment)
    try:
        yield instance
    finally:
        instance.close()
