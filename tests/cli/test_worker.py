"""`rota worker`, as one process and as several."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psycopg

from rota.cli.exit_codes import USAGE_ERROR

from .terminal import Program, Terminal, children_of, eventually, is_alive

SHOP = ("-a", "shop:app")
SLOWLY = {"ROTA_DRAIN_TIMEOUT": "60"}  # longer than any test waits: an early end was hurried


def fetch_value(terminal: Terminal, question: str) -> object:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row[0] if row else None


def state(terminal: Terminal, run: str) -> object:
    return fetch_value(terminal, f"select state from rota.job_state where run = {int(run)}")


def worker_states(terminal: Terminal) -> object:
    """Return the state of each worker."""
    return fetch_value(
        terminal, "select string_agg(state::text, ' ' order by id) from rota.workers"
    )


def start_waiting(terminal: Terminal, file: Path) -> str:
    """Start a run; return it once its code runs. It ends when the file exists."""
    run = terminal.run("start", *SHOP, "wait_for", f"file={file}").out.strip()
    eventually(Path(f"{file}.began").exists)
    return run


def workers(program: Program, count: int) -> list[int]:
    """Return the pids of `count` workers that have reported that they are up."""
    lines = program.said("jobs at once", times=count)
    return [int(re.findall(r"\[(\d+)\]", line)[0]) for line in lines]


def test_worker_command_sigterm_finishes_running_jobs(terminal: Terminal, tmp_path: Path) -> None:
    with terminal.program("worker", "shop:app", **SLOWLY) as worker:
        worker.said("up to")
        run = start_waiting(terminal, tmp_path / "go")

        worker.tell(signal.SIGTERM)
        (tmp_path / "go").touch()

        assert worker.ended().code == 0
    assert state(terminal, run) == "succeeded"
    assert worker_states(terminal) == "stopped"


def test_worker_command_second_signal_requeues_running_jobs(
    terminal: Terminal, tmp_path: Path
) -> None:
    with terminal.program("worker", "shop:app", **SLOWLY) as worker:
        worker.said("up to")
        run = start_waiting(terminal, tmp_path / "never")

        worker.tell(signal.SIGINT)
        worker.tell(signal.SIGTERM)

        assert worker.ended().code == 0
    assert state(terminal, run) == "queued"


def test_worker_command_queue_and_concurrency_options_are_used(terminal: Terminal) -> None:
    words = ("worker", "shop:app", "-q", "images", "-q", "other", "-c", "3")
    with terminal.program(*words) as worker:
        [line] = worker.said("up to")
        worker.tell(signal.SIGTERM)
        ended = worker.ended()

    assert "up to 3 jobs at once from images, other" in line
    assert re.match(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}Z info    \[{worker.pid}\] ", line)
    assert ended.out == ""


def test_worker_command_dsn_option_overrides_environment(terminal: Terminal) -> None:
    dsn = terminal.environment["ROTA_DATABASE_URL"]
    with terminal.program(
        "worker", "shop:app", "--dsn", dsn, ROTA_DATABASE_URL="postgresql://127.0.0.1:1/x"
    ) as worker:
        worker.said("up to")


def test_worker_processes_end_when_parent_is_killed(terminal: Terminal) -> None:
    with terminal.program("worker", "shop:app", "--processes", "2") as parent:
        pids = workers(parent, 2)

        parent.tell(signal.SIGKILL)

        try:
            eventually(lambda: not any(map(is_alive, pids)))
        finally:
            for pid in filter(is_alive, pids):
                os.kill(pid, signal.SIGKILL)
    # They stopped in order, as after a signal.
    assert worker_states(terminal) == "stopped stopped"


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


def test_worker_processes_start_error_is_printed_once(terminal: Terminal) -> None:
    done = terminal.run("worker", "shop:nothing", "--processes", "3")

    assert done.code == USAGE_ERROR
    assert "has no 'nothing'" in done.complaint


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


def test_worker_command_drain_timeout_option_overrides_environment(
    terminal: Terminal, tmp_path: Path
) -> None:
    with terminal.program("worker", "shop:app", "--drain-timeout", "1", **SLOWLY) as worker:
        worker.said("up to")
        run = start_waiting(terminal, tmp_path / "never")

        worker.tell(signal.SIGTERM)

        assert worker.ended().code == 0
    assert state(terminal, run) == "queued"


def test_worker_command_version_and_meta_are_listed(terminal: Terminal) -> None:
    words = ("--processes", "2", "--meta", "zone=eu-1", "--meta", "rank=3")
    with terminal.program("worker", "shop:app", *words, ROTA_VERSION="v7") as parent:
        workers(parent, 2)

        listed = terminal.run("workers", "--json").json()["workers"]

    for each in listed:
        assert (each["version"], each["metadata"]) == ("v7", {"zone": "eu-1", "rank": 3})


def test_worker_command_invalid_meta_is_refused(terminal: Terminal) -> None:
    for words in ("zone", "=eu-1"):
        done = terminal.run("worker", "shop:app", "--processes", "2", "--meta", words)

        assert done.code == USAGE_ERROR
        assert f"--meta {words!r} is not KEY=VALUE" in done.complaint


def test_worker_process_ended_by_signal_is_replaced(
    terminal: Terminal,
) -> None:
    """Its graceful stop does not reduce the number of processes that the parent keeps."""
    with terminal.program("worker", "shop:app", "--processes", "2") as parent:
        [victim, _] = workers(parent, 2)

        os.kill(victim, signal.SIGTERM)

        parent.said(f"worker process {victim} ended with exit code 0 unexpectedly")
        assert victim not in workers(parent, 3)[2:]
