"""`rota worker`, as one process and as several."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from rota.cli.exit_codes import USAGE_ERROR
from support.cli_workers import (
    SLOWLY,
    start_waiting,
    state,
    worker_states,
    workers,
)
from support.terminal import Terminal, eventually, is_alive


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


def test_worker_processes_start_error_is_printed_once(terminal: Terminal) -> None:
    done = terminal.run("worker", "shop:nothing", "--processes", "3")

    assert done.code == USAGE_ERROR
    assert "has no 'nothing'" in done.complaint


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
