"""`rota worker` runs an app's services beside its jobs or without any, unless an option disables it."""

from __future__ import annotations

import signal
import urllib.request

from support.cli_workers import RUNNING, fetch_rows
from support.server_process import free_port
from support.terminal import Terminal, eventually

ITERATIONS = "select count(*) from rota.iterations"


def test_worker_command_app_with_only_services_runs_them(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:app") as worker:
        worker.said("stands by for services filings, prices")
        worker.said("runs service", times=2)
        eventually(lambda: fetch_rows(terminal, ITERATIONS) > [(4,)])
        worker.tell(signal.SIGTERM)
        assert worker.ended().code == 0
    assert fetch_rows(terminal, RUNNING) == []
    assert fetch_rows(terminal, "select 1 from rota.instances") == []


def test_worker_command_drain_request_ends_services(terminal: Terminal) -> None:
    port = free_port()
    words = ("--health-port", str(port), "--auth", "local")
    with terminal.program("worker", "watch:app", *words, ROTA_LOCAL_KEY="k" * 22) as worker:
        worker.said("runs service", times=2)
        drain = urllib.request.Request(
            f"http://127.0.0.1:{port}/admin/drain",
            data=b"{}",
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {'k' * 22}"},
        )
        with urllib.request.urlopen(drain, timeout=60) as answer:
            assert answer.status == 202
        assert worker.ended().code == 0
    assert fetch_rows(terminal, RUNNING) == []


def test_worker_command_drain_hands_service_to_other_worker(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:both", ROTA_HEARTBEAT_INTERVAL="0.3") as worker:
        worker.said("runs service 'filings'")
        [(number,)] = fetch_rows(terminal, "select id from rota.workers")
        with terminal.program("worker", "watch:both") as other:
            other.said("stands by")
            assert terminal.run("drain", str(number)).code == 0
            other.said("runs service 'filings'")
            assert worker.ended().code == 0


def test_worker_command_stuck_service_ends_after_drain_timeout(
    terminal: Terminal,
) -> None:
    with terminal.program("worker", "watch:stubborn", "--drain-timeout", "1") as worker:
        worker.said("runs service 'stubborn'")
        eventually(lambda: fetch_rows(terminal, ITERATIONS) == [(1,)])
        worker.tell(signal.SIGTERM)
        ended = worker.ended(within=60)
    assert ended.code == 0
    assert "service 'stubborn' does not stop; it runs on here" in ended.err
    assert "Traceback" not in ended.err
    assert fetch_rows(terminal, RUNNING) == []


def test_worker_command_no_services_option_runs_none(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:both", "--no-services", "--processes", "2") as crew:
        crew.said("jobs at once", times=2)
        assert fetch_rows(terminal, "select 1 from rota.instances") == []
        crew.tell(signal.SIGTERM)
        assert "services" not in crew.ended().err
