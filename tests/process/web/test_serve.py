"""`rota serve`: an API in one process or several, and the errors when it cannot start."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from rota.cli.exit_codes import NO_DATABASE, USAGE_ERROR, CommandError
from rota.cli.options.web import listen
from rota.cli.serve import _load
from rota.cli.target import Target
from support.balancer import Clients
from support.scale import scale
from support.server_process import APPS, ServerProcess, free_port, serving, wait_until
from support.terminal import Terminal, children_of

SERVE = ["rota", "serve", "orders:api", "--port", "{port}"]


@pytest.fixture
def dsn(rota_dsn: str) -> str:
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute("create table orders (number integer)")
    return rota_dsn


def answering_pids(instance: ServerProcess) -> set[int]:
    """Return the pids of the processes that answer."""
    return {instance.ask(f"/orders/{each}", "POST").body["process"] for each in range(20)}


def test_serve_client_that_reads_nothing_does_not_block_shutdown(dsn: str, tmp_path: Path) -> None:
    settings = {"ROTA_DRAIN_DELAY": "0.1", "ROTA_DRAIN_TIMEOUT": "1"}
    with serving(SERVE, dsn, tmp_path, **settings) as instance:
        instance.up()
        with socket.create_connection(("127.0.0.1", instance.port)) as client:
            client.sendall(b"GET /large HTTP/1.1\r\nHost: web\r\n\r\n")
            assert client.recv(1) == b"H"  # the rest cannot be sent
            instance.tell(signal.SIGTERM)
            assert instance.ended() == 0


def test_serve_application_wrapped_in_drain_ends_at_the_first_signal(
    dsn: str, tmp_path: Path
) -> None:
    command = ["rota", "serve", "orders:drained", "--port", "{port}"]
    settings = {"ROTA_DRAIN_DELAY": "0.1", "ROTA_DRAIN_TIMEOUT": "30"}
    with serving(command, dsn, tmp_path, **settings) as instance:
        instance.up()
        instance.tell(signal.SIGTERM)
        assert instance.ended() == 0


@pytest.mark.parametrize("path", scale(["/handed-over"], ["/plain", "/handed-over"]))
def test_serve_uncancellable_request_does_not_block_shutdown(
    dsn: str, tmp_path: Path, path: str
) -> None:
    """The thread continues after its request was cut off, and Python would wait for it."""
    settings = {"ROTA_DRAIN_DELAY": "0.1", "ROTA_DRAIN_TIMEOUT": "1"}
    with serving(SERVE, dsn, tmp_path, **settings) as instance:
        instance.up()
        asking = threading.Thread(
            target=_request_ignoring_errors, args=(instance, f"{path}?file={tmp_path}/it")
        )
        asking.start()
        wait_until((tmp_path / "it.began").exists, instance)
        instance.tell(signal.SIGTERM)
        assert instance.ended(60) == 0
        asking.join()
        assert "1 thread(s) would not end, and are left behind" in instance.said
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select state::text from rota.workers").fetchall() == [
            ("stopped",)
        ]


def _request_ignoring_errors(instance: ServerProcess, path: str) -> None:
    with suppress(OSError, http.client.HTTPException):
        instance.ask(path)


def test_serve_connection_during_shutdown_is_refused(dsn: str, tmp_path: Path) -> None:
    """The parent of several processes keeps no listening socket that it never accepts from."""
    words = [*SERVE, "--workers", "2"]
    with serving(words, dsn, tmp_path, ROTA_DRAIN_DELAY="0", ROTA_DRAIN_TIMEOUT="60") as instance:
        instance.up()
        asking = threading.Thread(target=instance.ask, args=(f"/slow?file={tmp_path / 'go'}",))
        asking.start()
        wait_until((tmp_path / "go.began").exists, instance)
        instance.tell(signal.SIGTERM)
        wait_until(lambda: not instance.accepts(), instance)
        (tmp_path / "go").touch()
        asking.join()
        assert instance.ended() == 0


async def test_serve_process_restart_or_kill_fails_no_request(dsn: str, tmp_path: Path) -> None:
    """A restart of one process and a kill of another, idle one cause no failed request."""
    words = [*SERVE, "--workers", "2"]
    # Within the delay each client receives an answer that closes its connection.
    with serving(words, dsn, tmp_path, ROTA_DRAIN_DELAY="2") as instance:
        await asyncio.to_thread(instance.up)
        wait_until(lambda: len(answering_pids(instance)) == 2, instance)
        [first, second] = children_of(instance.process.pid)
        clients = Clients(instance.port, rate=50, connections=4)
        asking = asyncio.create_task(clients.ask())

        os.kill(first, signal.SIGTERM)
        await asyncio.to_thread(
            wait_until, lambda: children_of(instance.process.pid)[-1] > second, instance
        )
        await asyncio.to_thread(
            wait_until, lambda: instance.said.count("serving at") == 3, instance
        )

        clients.stop()
        await asking
        assert clients.failed == 0, clients.answers

        os.kill(second, signal.SIGKILL)
        for each in range(20):
            assert instance.ask(f"/orders/{each}", "POST").status == 202

        instance.tell(signal.SIGTERM)
        assert instance.ended() == 0
        assert f"web process {second} was ended by SIGKILL unexpectedly" in instance.said
    with psycopg.connect(dsn) as connection:
        states = connection.execute(
            "select distinct state::text from rota.workers where pid <> %s", (second,)
        ).fetchall()
    assert states == [("stopped",)]


def test_serve_health_port_answers_until_the_process_ends(dsn: str, tmp_path: Path) -> None:
    port = free_port()
    words = [*SERVE, "--health-port", str(port)]
    with serving(words, dsn, tmp_path, ROTA_DRAIN_DELAY="0") as instance:
        instance.up()
        run = instance.ask(f"/last?file={tmp_path / 'job'}", "POST").body["run"]
        wait_until((tmp_path / "job.began").exists, instance)
        beside = ServerProcess.__new__(ServerProcess)
        beside.port = port
        assert beside.ask("/health/ready").status == 200

        instance.tell(signal.SIGTERM)
        wait_until(lambda: not instance.accepts(), instance)

        assert beside.ask("/health/ready").status == 503
        assert beside.ask("/health/live").status == 200
        assert beside.ask("/metrics").status == 401
        (tmp_path / "job").touch()
        assert instance.ended() == 0
        assert not beside.accepts()
    with psycopg.connect(dsn) as connection:
        state = connection.execute("select state::text from rota.job_state where job = %s", (run,))
        assert state.fetchone() == ("succeeded",)


def test_serve_is_not_ready_until_the_api_has_started(dsn: str, tmp_path: Path) -> None:
    """This includes anything that the API starts before the app or after it."""
    port, before, after = free_port(), tmp_path / "before", tmp_path / "after"
    words = ["rota", "serve", "orders:late", "--port", "{port}", "--health-port", str(port)]
    settings = {"BEFORE": str(before), "AFTER": str(after), "ROTA_DRAIN_DELAY": "0"}
    with serving(words, dsn, tmp_path, **settings) as instance:
        beside = ServerProcess.__new__(ServerProcess)
        beside.port = port
        for file in (before, after):
            wait_until(file.with_suffix(".began").exists, instance)
            answer = beside.ask("/health/ready")
            assert answer.status == 503
            assert [each["code"] for each in answer.body["reasons"]] == ["starting"]
            file.touch()
        wait_until(lambda: beside.ask("/health/ready").status == 200, instance)
        instance.tell(signal.SIGTERM)
        assert instance.ended() == 0


def test_serve_second_signal_hurries_after_first_during_start(dsn: str, tmp_path: Path) -> None:
    job, before, after = tmp_path / "job", tmp_path / "before", tmp_path / "after"
    before.touch()
    words = ["rota", "serve", "orders:late", "--port", "{port}"]
    settings = {"BEFORE": str(before), "AFTER": str(after), "ROTA_DRAIN_TIMEOUT": "60"}
    with serving(words, dsn, tmp_path, **settings) as instance:
        wait_until(after.with_suffix(".began").exists, instance)
        Terminal(dsn, APPS).run("start", "-a", "orders:app", "last", f"file={job}")
        wait_until(job.with_suffix(".began").exists, instance)
        instance.tell(signal.SIGTERM)
        after.touch()
        wait_until(lambda: _is_draining(dsn), instance)  # it waits for the job
        instance.tell(signal.SIGTERM)
        assert instance.ended() == 0
        assert "shutting down: not ready" not in instance.said


def _is_draining(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select state::text from rota.workers").fetchone()
        return found == ("draining",)


def test_serve_signal_during_start_stops_after_the_start(dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn) as connection, serving(SERVE, dsn, tmp_path) as instance:
        # Its worker cannot register yet.
        connection.execute("lock table rota.workers in exclusive mode")
        wait_until(lambda: _has_lock_waiter(dsn), instance)

        instance.tell(signal.SIGTERM)
        connection.rollback()

        assert instance.ended() == 0
        assert "Traceback" not in instance.said
        assert connection.execute("select state::text from rota.workers").fetchall() == [
            ("stopped",)
        ]


def _has_lock_waiter(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select from pg_stat_activity"
            " where wait_event_type = 'Lock' and datname = current_database()"
        )
        return found.fetchone() is not None


class TestMistakes:
    @pytest.fixture
    def rota(self, rota_dsn: str) -> Terminal:
        return Terminal(rota_dsn, APPS)

    @pytest.mark.parametrize(
        ("name", "complaint"),
        [
            ("orders", "write MODULE:API, such as orders:api"),
            ("orders:app", "is a Rota app, not an API"),
            ("orders:nothing", "module 'orders' has no 'nothing'"),
            ("orders:ORDERS", "is a int, not an ASGI application"),
            ("json:loads", "has no Rota app: choose one with -a"),
        ],
    )
    def test_serve_invalid_api_name_is_refused(
        self, name: str, complaint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(str(APPS))
        with pytest.raises(CommandError, match=complaint) as told:
            _load(Target(), name)
        assert told.value.exit_code == USAGE_ERROR

    def test_serve_used_port_is_refused(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(CommandError, match=f"cannot listen at 127.0.0.1 port {port}"):
                listen("127.0.0.1", port, remedy="--port")

    def test_serve_missing_schema_prints_one_line(self, rota: Terminal) -> None:
        done = rota.run("serve", "orders:api", "--port", "0", "--schema", "elsewhere")
        assert done.code == NO_DATABASE
        assert done.err.splitlines()[-1].startswith(
            "rota: schema 'elsewhere' has no tables of Rota"
        )
        assert "Traceback" not in done.err

    def test_serve_health_port_with_several_processes_is_refused(self, rota: Terminal) -> None:
        words = ("--workers", "2", "--health-port", "0")
        done = rota.run("serve", "orders:api", "--port", "0", *words)
        assert done.code == USAGE_ERROR
        assert "--health-port does not work with --workers" in done.err

    def test_serve_public_health_with_local_access_is_refused(self, rota: Terminal) -> None:
        words = ("--health-port", "0", "--health-host", "0.0.0.0", "--auth", "local")
        done = rota.run("serve", "orders:api", "--port", "0", *words)
        assert done.code == USAGE_ERROR
        assert "for this machine alone" in done.complaint


def test_serve_without_uvicorn_prints_install_hint() -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None; from rota.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "serve", "orders:api"],
        capture_output=True,
        text=True,
        check=False,
        cwd=APPS,
    )
    assert done.returncode == USAGE_ERROR
    assert "pip install 'pgrota[web]'" in done.stderr
    assert "Traceback" not in done.stderr
