"""`rota worker` with several processes: signals, kills and drains."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from support.cli_workers import (
    SHOP,
    SLOWLY,
    fetch_value,
    start_waiting,
    state,
    worker_states,
    workers,
)
from support.terminal import Terminal, children_of, eventually, is_alive


def test_worker_processes_receive_ctrl_c_once(terminal: Terminal, tmp_path: Path) -> None:
    with terminal.program("worker", "shop:app", "--processes", "2", **SLOWLY) as parent:
        pids = workers(parent, 2)
        assert sorted(children_of(parent.pid)) == sorted(pids)
        run = start_waiting(terminal, tmp_path / "go")

        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
        parent.said("stopping 2 worker processes")
        (tmp_path / "go").touch()

        assert parent.ended().code == 0
    assert state(terminal, run) == "succeeded"
    assert not any(map(is_alive, pids))


def test_worker_processes_drained_are_not_replaced_and_end_parent(
    terminal: Terminal, tmp_path: Path
) -> None:
    with terminal.program("worker", "shop:app", "--processes", "2", **SLOWLY) as parent:
        workers(parent, 2)
        run = start_waiting(terminal, tmp_path / "go")
        busy = fetch_value(terminal, "select worker from rota.claims")
        idle = fetch_value(terminal, f"select id from rota.workers where id <> {busy}")

        assert terminal.run("drain", str(idle), "--wait", "20").code == 0
        parent.said("was drained and is not replaced")
        assert len(children_of(parent.pid)) == 1
        assert terminal.run("drain", str(busy)).code == 0
        parent.said("1 running")
        (tmp_path / "go").touch()

        assert parent.ended().code == 0
    assert state(terminal, run) == "succeeded"
    assert worker_states(terminal) == "stopped stopped"


def test_worker_isolated_job_process_ends_when_parent_is_killed(
    terminal: Terminal, tmp_path: Path
) -> None:
    """The process of a job is killed, too, even if it never ends by itself."""
    noted = tmp_path / "pid"
    with terminal.program(
        "worker", "shop:app", "--processes", "2", "--drain-timeout", "1"
    ) as parent:
        pids = workers(parent, 2)
        run = terminal.run("start", *SHOP, "apart", f"file={noted}").out.strip()
        eventually(lambda: noted.exists() and noted.read_text())
        pids.append(int(noted.read_text()))
        assert is_alive(pids[-1])

        parent.tell(signal.SIGKILL)

        try:
            eventually(lambda: not any(map(is_alive, pids)))
        finally:
            for pid in filter(is_alive, pids):
                os.kill(pid, signal.SIGKILL)
    assert state(terminal, run) == "queued"


def test_worker_process_ended_by_signal_is_replaced(
    terminal: Terminal,
) -> None:
    """Its graceful stop does not reduce the number of processes that the parent keeps."""
    with terminal.program("worker", "shop:app", "--processes", "2") as parent:
        [victim, _] = workers(parent, 2)

        os.kill(victim, signal.SIGTERM)

        parent.said(f"worker process {victim} ended with exit code 0 unexpectedly")
        assert victim not in workers(parent, 3)[2:]
