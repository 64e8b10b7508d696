"""Open snapshot: a long transaction prevents the removal of dead rows.

A second connection holds a REPEATABLE READ snapshot and a transaction id while 200,000
jobs are drained; the speed of the next 100,000 is compared with the same without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import Ground, Stage

BAR = Bar("drain under an open snapshot / free", 0.7, 0.9, more=True)


def run(stage: Stage) -> Findings:
    sizes = stage.sizes
    findings = Findings(f"Open snapshot, after {sizes.under_snapshot:,} jobs")
    free, held = [], []
    for turn in range(sizes.pairs):
        free.append(_rate(stage, hold=False))
        held.append(_rate(stage, hold=True))
        stage.say(f"snapshot {turn + 1}: {held[-1]:,.0f}/s, free {free[-1]:,.0f}/s")

    what = f"{sizes.after_snapshot:,} after {sizes.under_snapshot:,}"
    findings.add(f"{what}, free", stage.rota.name, "jobs/s", free)
    findings.add(f"{what}, snapshot open", stage.rota.name, "jobs/s", held)
    findings.judge(BAR, ratios(held, free))
    return findings


def _rate(stage: Stage, hold: bool) -> float:
    before, after = stage.sizes.under_snapshot, stage.sizes.after_snapshot
    ground = stage.fresh(stage.rota)
    with ground.workers(1) as workers:
        workers.warm_up()
        numbers = ground.fill(before + after)
        ground.settle()
        with _snapshot(ground) if hold else _nothing():
            reached, ended = workers.reach([before, before + after], numbers)
    ground.drop()
    return after / (ended - reached)


@contextmanager
def _snapshot(ground: Ground) -> Iterator[None]:
    with psycopg.connect(ground.dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select pg_current_xact_id()")
        yield
        connection.rollback()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
