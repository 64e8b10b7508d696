"""HTTP listeners with idle clients: idle connections are closed, and the process continues."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rota import Rota
from rota.web import connection_limit, serve
from rota.web.listen import bind
from support.server_process import ServerProcess, serving

FILES = 200
IDLE = 300


@pytest.fixture
def worker(rota_dsn: str, tmp_path: Path) -> Iterator[ServerProcess]:
    words = ["rota", "worker", "watched:app", "--health-port", "{port}"]
    with serving(words, rota_dsn, tmp_path) as instance:
        yield instance


async def test_worker_above_file_limit_still_runs_jobs_and_answers_health(
    worker: ServerProcess, rota_app: Rota
) -> None:
    @rota_app.task
    async def double(n: int, wait: float = 0.0) -> int:
        raise NotImplementedError  # implemented in the worker process

    await asyncio.to_thread(worker.up)
    resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    with ExitStack() as stack:
        for _ in range(IDLE):
            client = socket.create_connection(("127.0.0.1", worker.port), timeout=60)
            stack.enter_context(client)

        answer = await asyncio.to_thread(worker.ask, "/health/ready")
        runs = await rota_app.start_many([double.bind(n) for n in range(50)])
        results = [await run.result(timeout=60) for run in runs]

    assert answer.status == 200, worker.said
    assert results == [2 * n for n in range(50)]
    assert f"{FILES // 2} HTTP connections are open" in worker.said
    assert "Too many open files" not in worker.said


class Client:
    """Connection that sends the bytes of a test, one at a time if needed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> bytes:
        """Return the next answer, with a body of two bytes; nothing if the connection is closed."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            return head + await self._reader.readexactly(2)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def request(self, path: str = "/") -> bytes:
        self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await self.answer()

    def close(self) -> None:
        self._writer.close()


class Server:
    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.clients: list[Client] = []
        self._socket = bind("127.0.0.1", 0)
        routes = [Route("/", self._quick), Route("/slow", self._slow)]
        self.serving = serve.serving(Starlette(routes=routes), self._socket)

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection(*self._socket.getsockname())
        self.clients.append(Client(reader, writer))
        return self.clients[-1]

    async def _quick(self, _: Request) -> Response:
        return PlainTextResponse("ok")

    async def _slow(self, _: Request) -> Response:
        self.began.set()
        await self.go_on.wait()
        return PlainTextResponse("ok")


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(connection_limit, "connections", connection_limit.OpenConnections())
    server = Server()
    async with server.serving:
        yield server
        for client in server.clients:
            client.close()
        server.go_on.set()


def limit_to(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limit.OpenConnections, "limit", staticmethod(lambda: count))


async def test_connection_incomplete_request_head_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "HEAD_SECONDS", 0.05)
    silent, slow = await server.connect(), await server.connect()
    slow.send(b"GET / HTTP/1.1\r\nHost: local")
    assert await silent.answer() == b""
    assert await slow.answer() == b""


async def test_connection_reused_with_incomplete_head_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await server.connect()
    assert b"200 OK" in await client.request()
    monkeypatch.setattr(connection_limit, "HEAD_SECONDS", 0.05)
    client.send(b"GET / HT")
    assert await client.answer() == b""


async def test_request_longer_than_head_timeout_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await server.connect()
    slow = asyncio.create_task(client.request("/slow"))
    await server.began.wait()
    monkeypatch.setattr(connection_limit, "HEAD_SECONDS", 0.01)
    assert await (await server.connect()).answer() == b""  # its idle timeout expired meanwhile
    server.go_on.set()
    assert b"200 OK" in await slow


async def test_connection_new_at_limit_closes_the_oldest_idle(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_to(3, monkeypatch)
    used, first, second = [await server.connect() for _ in range(3)]
    assert b"200 OK" in await used.request()  # the last connection to become idle
    new = await server.connect()
    assert b"200 OK" in await new.request()
    assert await first.answer() == b""
    for client in (used, second, new):
        assert b"200 OK" in await client.request()


async def test_connection_new_at_limit_is_closed_if_all_are_busy(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_to(1, monkeypatch)
    busy = await server.connect()
    slow = asyncio.create_task(busy.request("/slow"))
    await server.began.wait()
    assert await (await server.connect()).request() == b""
    server.go_on.set()
    assert b"200 OK" in await slow
