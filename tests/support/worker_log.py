"""Output of `rota worker` on stderr."""

from __future__ import annotations

import signal

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
