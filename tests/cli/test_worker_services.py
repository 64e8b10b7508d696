"""`rota worker` runs an app's services beside its jobs or without any, unless an option disables it."""

from __future__ import annotations

import signal
import urllib.request
from typing import Any

import psycopg

from web.instance import free_port

from .terminal import Terminal, eventually

RUNNING = "select name from rota.leaders where instance is not null"
ITERATIONS = "select count(*) from rota.iterations"


def ask(terminal: Terminal, question: str) -> list[tuple[Any, ...]]:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def processes(terminal: Terminal) -> int:
    """Return the number of processes that ran service iterations."""
    [(count,)] = ask(terminal, "select count(distinct pid) from rota.iterations")
    return int(count)


def test_an_app_that_has_services_alone(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:app") as worker:
        worker.said("stands by for services filings, prices")
        worker.said("runs service", times=2)
        eventually(lambda: ask(terminal, ITERATIONS) > [(4,)])
        worker.tell(signal.SIGTERM)
        assert worker.ended().code == 0
    assert ask(terminal, RUNNING) == []
    assert ask(terminal, "select 1 from rota.instances") == []


def test_one_that_is_asked_to_leave_does(terminal: Terminal) -> None:
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
    assert ask(terminal, RUNNING) == []


def test_they_spread_over_the_processes_of_one_crew(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:app", "--processes", "2") as crew:
        crew.said("stands by", times=2)
        eventually(lambda: processes(terminal) == 2)
        crew.tell(signal.SIGTERM)
        assert crew.ended().code == 0
    assert ask(terminal, RUNNING) == []


def test_beside_jobs_and_passed_on_when_it_is_drained(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:both", ROTA_HEARTBEAT_INTERVAL="0.3") as worker:
        worker.said("runs service 'filings'")
        [(number,)] = ask(terminal, "select id from rota.workers")
        with terminal.program("worker", "watch:both") as other:
            other.said("stands by")
            assert terminal.run("drain", str(number)).code == 0
            other.said("runs service 'filings'")
            assert worker.ended().code == 0


def test_one_that_does_not_stop_keeps_its_process_no_longer_than_the_grace(
    terminal: Terminal,
) -> None:
    with terminal.program("worker", "watch:stubborn", "--drain-timeout", "1") as worker:
        worker.said("runs service 'stubborn'")
        eventually(lambda: ask(terminal, ITERATIONS) == [(1,)])
        worker.tell(signal.SIGTERM)
        ended = worker.ended(within=60)
    assert ended.code == 0
    assert "service 'stubborn' does not stop; it runs on here" in ended.err
    assert "Traceback" not in ended.err
    assert ask(terminal, RUNNING) == []


def test_one_that_is_to_leave_them_to_others(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:both", "--no-services", "--processes", "2") as crew:
        crew.said("jobs at once", times=2)
        assert ask(terminal, "select 1 from rota.instances") == []
        crew.tell(signal.SIGTERM)
        assert "services" not in crew.ended().err
