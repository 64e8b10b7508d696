"""Services of `rota worker` with several processes."""

from __future__ import annotations

import signal

from support.cli_workers import RUNNING, fetch_rows
from support.terminal import Terminal, eventually


def processes(terminal: Terminal) -> int:
    """Return the number of processes that ran service iterations."""
    [(count,)] = fetch_rows(terminal, "select count(distinct pid) from rota.iterations")
    return int(count)


def test_worker_command_services_spread_over_processes(terminal: Terminal) -> None:
    with terminal.program("worker", "watch:app", "--processes", "2") as crew:
        crew.said("stands by", times=2)
        eventually(lambda: processes(terminal) == 2)
        crew.tell(signal.SIGTERM)
        assert crew.ended().code == 0
    assert fetch_rows(terminal, RUNNING) == []
