"""Graceful shutdown of a web process under each of the supported servers."""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
import uvloop

from rota import Rota
from rota.app.shutdown_signals import SignalHandlers
from rota.asgi import Drain
from rota.web.graceful_shutdown import InFlightRequests, Message, Receive, Scope, Send
from support.scale import scale
from support.server_process import Answer, ServerProcess, send_request, serving, wait_until
from support.service_helpers import until

SERVE = ["rota", "serve", "orders:api", "--port", "{port}"]
UVICORN = ["uvicorn", "orders:drained", "--port", "{port}"]
WORKERS = [*UVICORN, "--workers", "2"]
GUNICORN = ["gunicorn", "orders:drained", "-b", "127.0.0.1:{port}", "-k", "asgi"]
HYPERCORN = ["hypercorn", "orders:drained", "-b", "127.0.0.1:{port}", "--workers", "0"]
COMMANDS = {
    "rota serve": SERVE,
    "uvicorn workers": WORKERS,
    "gunicorn": GUNICORN,
    "hypercorn": HYPERCORN,
}
MORE_COMMANDS = {
    "uvicorn": UVICORN,
    "uvicorn asyncio": [*UVICORN, "--loop", "asyncio"],
    "gunicorn asyncio": [*GUNICORN, "--asgi-loop", "asyncio"],
    "gunicorn uvicorn": [*GUNICORN[:-1], "uvicorn.workers.UvicornWorker"],
    "hypercorn uvloop": [*HYPERCORN, "-k", "uvloop"],
}
COMMANDS = scale(COMMANDS, COMMANDS | MORE_COMMANDS)
BARE = scale([UVICORN], [UVICORN, GUNICORN, HYPERCORN])
SLOWLY = {
    "ROTA_DRAIN_DELAY": "30",
    "ROTA_DRAIN_TIMEOUT": "30",
}  # ending within 20 s: it was hurried


class WaitingRequest(threading.Thread):
    """Request that waits for its answer."""

    def __init__(self, instance: ServerProcess, file: Path) -> None:
        super().__init__(daemon=True)
        self._instance = instance
        self._file = file
        self.answer: Answer | None = None
        self.start()
        wait_until(file.with_suffix(".began").exists, instance)

    def run(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            self.answer = self._instance.ask(f"/slow?file={self._file}")


def start_last(instance: ServerProcess, file: Path) -> int:
    """Start a job; return its run once its code runs. It ends when the file exists."""
    run: int = instance.ask(f"/last?file={file}", "POST").body["run"]
    wait_until(file.with_suffix(".began").exists, instance)
    return run


def state_of(dsn: str, run: int) -> tuple[str, int]:
    """Return the state and the attempt number of a job."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select state::text, attempt from rota.job_state where job = %s", (run,)
        ).fetchone()
    assert found is not None
    return found[0], found[1]


def worker_states(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select state::text from rota.workers order by id").fetchall()
    return [state for (state,) in found]


@pytest.fixture
def dsn(rota_dsn: str) -> str:
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute("create table orders (number integer)")
    return rota_dsn


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_server_during_drain_delay_serves_requests_and_is_not_ready(
    command: list[str], dsn: str, tmp_path: Path
) -> None:
    with serving(command, dsn, tmp_path, ROTA_DRAIN_DELAY="1.5") as instance:
        instance.up()
        kept = http.client.HTTPConnection("127.0.0.1", instance.port)
        assert not send_request(kept, "/orders/1", "POST").closes

        instance.tell(signal.SIGTERM)
        began = time.monotonic()
        wait_until(lambda: not instance.is_ready(), instance)

        # The socket accepts, requests are served, and kept connections are closed with their next answer.
        [reason] = instance.ask("/health/ready").body["reasons"]
        assert reason["code"] == "draining"
        assert instance.ask("/orders/2", "POST").status == 202
        answer = send_request(kept, "/orders/3", "POST")
        assert (answer.status, answer.closes) == (202, True)
        kept.close()

        wait_until(lambda: not instance.accepts(), instance)
        assert time.monotonic() - began > 1.4
        instance.ended()
        assert "closed" not in instance.said
        assert "Traceback" not in instance.said
    with psycopg.connect(dsn) as connection:
        states = connection.execute("select distinct state::text from rota.workers").fetchall()
    assert states == [("stopped",)]


def test_server_shutdown_waits_for_open_requests_and_jobs(dsn: str, tmp_path: Path) -> None:
    with serving(UVICORN, dsn, tmp_path, ROTA_DRAIN_DELAY="0.2") as instance:
        instance.up()
        run = start_last(instance, tmp_path / "job")
        asked = WaitingRequest(instance, tmp_path / "request")

        instance.tell(signal.SIGTERM)
        wait_until(lambda: not instance.accepts(), instance)

        assert instance.process.poll() is None
        (tmp_path / "request").touch()
        asked.join(60)
        assert asked.answer is not None
        assert (asked.answer.status, asked.answer.closes) == (200, True)
        # The request has been answered, the job still runs: the process waits for it.
        assert state_of(dsn, run) == ("running", 1)
        (tmp_path / "job").touch()
        instance.ended()
        assert "Traceback" not in instance.said
    assert state_of(dsn, run) == ("succeeded", 1)


@pytest.mark.parametrize("command", BARE, ids=lambda words: words[0])
def test_server_without_drain_stops_worker_during_open_request(
    command: list[str], dsn: str, tmp_path: Path
) -> None:
    """Without Drain the server notifies the application only after its last request was answered."""
    bare = [word.replace("orders:drained", "orders:api") for word in command]
    with serving(bare, dsn, tmp_path) as instance:
        instance.up()
        asked = WaitingRequest(instance, tmp_path / "request")
        instance.tell(signal.SIGTERM)
        wait_until(lambda: worker_states(dsn) == ["draining"], instance)
        assert asked.answer is None
        (tmp_path / "request").touch()
        instance.ended()
        asked.join(60)
    assert asked.answer is not None
    assert asked.answer.status == 200
    assert worker_states(dsn) == ["stopped"]


@pytest.mark.parametrize("command", [SERVE, UVICORN], ids=["rota serve", "uvicorn"])
def test_server_second_signal_cancels_requests_and_requeues_jobs(
    command: list[str], dsn: str, tmp_path: Path
) -> None:
    with serving(command, dsn, tmp_path, **SLOWLY) as instance:
        instance.up()
        run = start_last(instance, tmp_path / "job")
        asked = WaitingRequest(instance, tmp_path / "request")

        instance.tell(signal.SIGTERM)
        wait_until(lambda: not instance.is_ready(), instance)
        instance.tell(signal.SIGTERM)

        instance.ended()
        asked.join(60)
        assert "cancelled 1 request(s)" in instance.said
    assert asked.answer is None or asked.answer.status == 500
    assert state_of(dsn, run) == ("queued", 1)


def test_server_drain_timeout_cancels_requests_and_requeues_jobs(dsn: str, tmp_path: Path) -> None:
    settings = {"ROTA_DRAIN_DELAY": "0", "ROTA_DRAIN_TIMEOUT": "2"}
    with serving(SERVE, dsn, tmp_path, **settings) as instance:
        instance.up()
        run = start_last(instance, tmp_path / "job")
        asked = WaitingRequest(instance, tmp_path / "request")

        instance.tell(signal.SIGTERM)

        assert instance.ended() == 0
        asked.join(60)
        assert "cancelled 1 request(s) that did not end within the drain timeout" in instance.said
    # The attempt is not counted: the next attempt is number 1 again.
    assert state_of(dsn, run) == ("queued", 1)


# In this process


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("way", ["handler", "loop"])
def test_signal_handlers_forward_signal_to_server_on_request(loop_factory: Any, way: str) -> None:
    """For handlers of `signal` and of the event loop. Other signals reach the server directly."""
    heard: list[str] = []

    async def listening() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, heard.append, "USR1")
        if way == "loop":
            loop.add_signal_handler(signal.SIGTERM, heard.append, "TERM")
        else:
            signal.signal(signal.SIGTERM, lambda number, frame: heard.append("TERM"))
        signals = SignalHandlers(lambda number: heard.append(f"ours {number}"))
        assert signals.install()

        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: len(heard) == 1)
        os.kill(os.getpid(), signal.SIGUSR1)
        await until(lambda: len(heard) == 2)
        assert heard == ["ours 15", "USR1"]

        signals.forward(signal.SIGTERM)
        await until(lambda: len(heard) == 3)
        assert heard == ["ours 15", "USR1", "TERM"]

        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: len(heard) == 4)
        assert heard.pop() == "ours 15"

        signals.uninstall()
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: len(heard) == 4)
        assert heard == ["ours 15", "USR1", "TERM", "TERM"]

    before = signal.getsignal(signal.SIGTERM)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(listening())
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_drain_ctrl_c_and_parent_signal_count_as_one(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches every process of a terminal, and the server's parent sends another signal to its
    processes.
    """
    monkeypatch.setattr(SignalHandlers, "forward", lambda signals, number: None)
    drain = Drain(_empty_api, rota_app, drain_delay=60)
    drain._start()
    try:
        drain._on_signal(signal.SIGINT)
        drain._on_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        assert (rota_app.readiness.is_draining, rota_app.readiness.is_hurried) == (True, False)

        drain._on_signal(signal.SIGINT)
        assert rota_app.readiness.is_hurried
    finally:
        drain._stop()


async def test_drain_without_signal_access_logs_a_warning(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Hypercorn's parent receives the signal and stops its processes by other means."""
    monkeypatch.setitem(sys.modules, "hypercorn", ModuleType("hypercorn"))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "there is one")
    drain = Drain(_empty_api, rota_app)
    drain._start()
    drain._stop()
    assert "start it with --workers 0" in caplog.text

    caplog.clear()
    await asyncio.to_thread(_start_drain_in_other_loop, rota_app)
    assert "does not run in the main thread" in caplog.text


def _start_drain_in_other_loop(app: Rota) -> None:
    async def begin() -> None:
        drain = Drain(_empty_api, app)
        drain._start()
        drain._stop()

    asyncio.run(begin())


@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_response_while_draining_closes_http1_connection(
    rota_app: Rota, version: str
) -> None:
    sent: list[Message] = []

    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [KEEP]})

    async def send(message: Message) -> None:
        sent.append(message)

    KEEP = (b"Connection", b"keep-alive")
    requests = InFlightRequests(rota_app.readiness)
    for draining in (False, True):
        rota_app.readiness.is_draining = draining
        await requests.serve(api, {"type": "http", "http_version": version}, _fail_on_receive, send)
    closes = (b"connection", b"close") if version == "1.1" else KEEP
    assert [each["headers"] for each in sent] == [[KEEP], [closes]]
    assert len(requests) == 0


async def _empty_api(scope: Scope, receive: Receive, send: Send) -> None: ...


async def _fail_on_receive() -> Message:
    raise AssertionError("nobody asks")
