"""Idle cost: one worker with nothing to do, alone on its database.

Transactions are read from pg_stat_database over a connection to another database, so that these queries do
not count. A backend reports its counts up to ten seconds late. That shifts both ends of the window, but
the transactions of the start must have been reported before the window begins. Rota's figure includes
polling, timers, the heartbeat thread and the search for orphaned claims. The window is a whole number of
heartbeats.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.contender import Contender
from benchmarks.findings import Bar, Findings
from benchmarks.stage import STEP, Ground, Stage, Wrong
from rota.model.settings import Settings

TRANSACTIONS = Bar("idle worker, transactions", 2.0, 1.0, more=False, unit="/s")
PROCESSOR = Bar("idle worker, CPU", 0.7, None, more=False, unit="% of a core")
MEMORY = Bar("idle worker, memory", 70.0, None, more=False, unit="MB")
SETTLE = 15.0

COUNT = """
select xact_commit + xact_rollback from pg_stat_database where datname = '{database}'
"""


def run(stage: Stage) -> Findings:
    seconds = stage.sizes.idle_seconds
    findings = Findings(f"An idle worker, alone, for {seconds} s")
    for contender in stage.contenders:
        measured = _measure(stage, contender, seconds)
        for bar, value in measured.items():
            findings.add(bar.what, contender.name, bar.unit, [value])
            if contender is stage.rota:
                findings.judge(bar, [value])
        said = ", ".join(f"{value:.2f} {bar.unit}" for bar, value in measured.items())
        stage.say(f"idle: {contender.name} {said}")
    return findings


def _measure(stage: Stage, contender: Contender, seconds: float) -> dict[Bar, float]:
    ground = stage.fresh(contender)
    ground.settle()
    query = COUNT.format(database=ground.database)
    with contender.child(ground.dsn) as worker:
        worker.tell("work", concurrency=contender.concurrency, haste=False, marks=[], timed=False)
        worker.until("working", STEP)
        time.sleep(SETTLE)
        with stage.cluster.connection() as connection:
            # Each query in its own transaction: within one, the view is a snapshot.
            before, busy, began = _number(connection, query), _busy(worker.pid), time.monotonic()
            time.sleep(seconds)
            after, later, ended = _number(connection, query), _busy(worker.pid), time.monotonic()
        memory = _memory(worker.pid)
        if contender is stage.rota:
            _check(ground, SETTLE + seconds)
        worker.tell("stop")
        worker.until("done", STEP)
    ground.drop()
    passed = ended - began
    return {
        TRANSACTIONS: (after - before) / passed,
        PROCESSOR: 100 * (later - busy) / passed,
        MEMORY: memory,
    }


def _check(ground: Ground, seconds: float) -> None:
    """Check that the worker was the only one and sent heartbeats; otherwise the figure is wrong."""
    if (workers := ground.number("select count(*) from rota.workers")) != 1:
        raise Wrong(f"{workers} workers are registered, not one")
    beats, due = (
        ground.number("select beats from rota.workers"),
        seconds // Settings().heartbeat_interval,
    )
    if beats < due:
        raise Wrong(f"the worker sent {beats} heartbeats, not {due:.0f}")


def _number(connection: object, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])  # type: ignore[attr-defined]


def _busy(pid: int) -> float:
    """Return the CPU seconds of all threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """Return the resident memory in MB of 1,000,000 bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
