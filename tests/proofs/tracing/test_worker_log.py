"""Output of `rota worker` as text and from several processes."""

from __future__ import annotations

import json
import signal

from support.terminal import Terminal
from support.worker_log import APPS, SECRET, TASKS, run_worker


def test_worker_log_text_lines_name_their_job(rota_dsn: str) -> None:
    runs, done = run_worker(rota_dsn, "--log-format", "text", ROTA_LOG_FORMAT="json")

    for task in TASKS[:3]:
        [line] = [each for each in done.err.splitlines() if each.endswith(f" {task}")]
        assert f"] (job {runs[task]}, attempt 1) {task}" in line
    [failed] = [each for each in done.err.splitlines() if "it will not be retried" in each]
    assert f"] job {runs['failing']} (failing) failed on attempt 1: " in failed
    assert SECRET not in done.err


def test_worker_log_of_all_processes_is_json(rota_dsn: str) -> None:
    terminal = Terminal(rota_dsn, APPS)
    words = ("worker", "orders:app", "--processes", "2", "--log-format", "json")
    with terminal.program(*words) as worker:
        worker.said("up to", times=2)
        worker.tell(signal.SIGTERM)
        done = worker.ended()

    lines = [json.loads(line) for line in done.err.splitlines()]
    assert len({each["process"] for each in lines}) == 3
