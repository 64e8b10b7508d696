"""HAProxy in front of two instances, and clients that send requests through it.

HAProxy retries nothing: a request that fails once counts as failed.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CONFIGURATION = """
global
    stats socket {directory}/stats level user
    maxconn 2000

defaults
    mode http
    retries 0
    timeout connect 2s
    timeout client 30s
    timeout server 30s

frontend web
    bind 127.0.0.1:{port}
    default_backend instances

backend instances
    balance roundrobin
    option httpchk GET /health/ready
    http-check expect status 200
    timeout check 2s
    default-server inter 100ms fall 2 rise 2
    server one 127.0.0.1:{one} check
    server two 127.0.0.1:{two} check
"""


def haproxy_path() -> str | None:
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")


class Balancer:
    def __init__(self, directory: Path, port: int, one: int, two: int) -> None:
        program = haproxy_path()
        assert program is not None
        self.port = port
        self._directory = directory
        file = directory / "haproxy.cfg"
        file.write_text(CONFIGURATION.format(directory=directory, port=port, one=one, two=two))
        self.process = subprocess.Popen([program, "-db", "-q", "-f", str(file)])

    def up(self) -> list[str]:
        """Return the instances that it sends requests to."""
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(str(self._directory / "stats"))
            except OSError:
                return []
            asking.sendall(b"show stat\n")
            told = b"".join(iter(lambda: asking.recv(65536), b"")).decode()
        rows = [line.split(",") for line in told.splitlines()]
        named = {row[1]: row[17] for row in rows if row[0] == "instances"}
        return [name for name in ("one", "two") if named[name] == "UP"]

    def until_up(self, wanted: list[str], within: float = 60) -> None:
        deadline = time.monotonic() + within
        while self.up() != wanted:
            assert time.monotonic() < deadline, f"{self.up()} are up after {within:g} s"
            time.sleep(0.02)


@contextmanager
def balancing(directory: Path, port: int, one: int, two: int) -> Iterator[Balancer]:
    if haproxy_path() is None:
        pytest.skip("HAProxy is not installed")
    balancer = Balancer(directory, port, one, two)
    try:
        yield balancer
    finally:
        balancer.process.terminate()
        balancer.process.wait()


class Clients:
    """Clients that send `rate` numbered requests a second on keep-alive connections."""

    def __init__(
        self, port: int, rate: float = 200, connections: int = 16, path: str = "/orders/{number}"
    ) -> None:
        self._port = port
        self._path = path
        self._every = connections / rate
        self._connections = connections
        self._asking = True
        self._next = 0
        self.answers: Counter[str] = Counter()
        """Count by status, or by error if no answer arrived."""
        self.failures: list[float] = []
        """Times at which the failures were noticed."""
        self.accepted: list[int] = []
        self.slowest = 0.0
        self.took = 0.0

    @property
    def failed(self) -> int:
        return self.answers.total() - self.answers["202"]

    async def ask(self) -> None:
        """Send requests until `stop` is called."""
        spread, began = self._every / self._connections, time.monotonic()
        await asyncio.gather(*(self._client(at * spread) for at in range(self._connections)))
        self.took = time.monotonic() - began

    def stop(self) -> None:
        self._asking = False

    async def _client(self, first: float) -> None:
        due = time.monotonic() + first
        line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while self._asking:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += self._every
            self._next += 1
            number, began = self._next, time.monotonic()
            try:
                async with asyncio.timeout(60):
                    line = line or await asyncio.open_connection("127.0.0.1", self._port)
                    status, kept = await _post(*line, self._path.format(number=number))
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                status, kept = type(error).__name__, False
            self.answers[status] += 1
            if status == "202":
                self.accepted.append(number)
            else:
                self.failures.append(time.monotonic())
            self.slowest = max(self.slowest, time.monotonic() - began)
            if not kept and line is not None:
                line[1].close()
                line = None
        if line is not None:
            line[1].close()


async def _post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str
) -> tuple[str, bool]:
    """Send a request; return its status and whether the connection can be used again."""
    writer.write(f"POST {path} HTTP/1.1\r\nHost: web\r\nContent-Length: 0\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status = head.split(" ", 2)[1]
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
    await reader.readexactly(int(headers.get("content-length", "0")))
    return status, headers.get("connection") != "close" and "content-length" in headers
