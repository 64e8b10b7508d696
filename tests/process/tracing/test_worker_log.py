"""Output of `rota worker` on stderr, as text and as JSON."""

from __future__ import annotations

import json
import signal
from typing import Any

from support.places import SUPPORT
from support.terminal import CommandResult, Terminal

APPS = SUPPORT / "tracing_apps"
TASKS = ("awaited", "threaded", "isolated", "failing")
SECRET = "hunter2"


def run_worker(dsn: str, *words: str, **environment: str) -> tuple[dict[str, int], CommandResult]:
    """Start each task once, and return the run ids and the output of the worker."""
    terminal = Terminal(dsn, APPS)
    runs: dict[str, int] = {}
    with terminal.program("worker", "orders:app", *words, **environment) as worker:
        worker.said("up to")
        for task in TASKS:
            done = terminal.run("start", "-a", "orders:app", task, f"card={SECRET}")
            runs[task] = int(done.out)
        for task in TASKS[:3]:
            worker.said(task)
        worker.said("it will not be retried")
        worker.tell(signal.SIGTERM)
        return runs, worker.ended()


def test_worker_log_json_lines_have_the_fields_of_their_job(rota_dsn: str) -> None:
    runs, done = run_worker(rota_dsn, ROTA_LOG_FORMAT="json")

    lines: list[dict[str, Any]] = [json.loads(line) for line in done.err.splitlines()]
    of = {each["message"]: each for each in lines if each["logger"] == "shop.orders"}
    assert sorted(of) == ["awaited", "caught", "isolated", "threaded"]
    worker = next(each for each in lines if "up to" in each["message"])
    for task in TASKS[:3]:
        line = of[task]
        assert (line["run"], line["job"], line["task"]) == (runs[task], runs[task], task)
        assert (line["attempt"], line["level"]) == (1, "info")
        assert isinstance(line["worker"], int)
        assert line["time"].endswith("Z")
    assert of["awaited"]["process"] == of["threaded"]["process"] == worker["process"]
    assert of["isolated"]["process"] != worker["process"]
    assert of["caught"]["exception"].endswith("ValueError: it was declined")
    assert len({of[task]["worker"] for task in TASKS[:3]}) == 1
    assert SECRET not in done.err
    assert SECRET not in done.out


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


def test_worker_log_unknown_format_is_refused(rota_dsn: str) -> None:
    done = Terminal(rota_dsn, APPS).run("worker", "orders:app", ROTA_LOG_FORMAT="xml")

    assert done.code == 2
    assert "'xml' is not one of 'text', 'json'" in done.complaint
