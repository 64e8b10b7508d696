"""Retention: draining 200,000 jobs while the same worker removes old runs, against keeping them.

Both have a million finished jobs beside them, a day old; one keeps such jobs for an hour, the other
forever. The removed jobs are counted, and no other job may be missing. Then the rest is removed on an idle
system, to measure the speed of removal alone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace

from benchmarks.contender import Contender
from benchmarks.findings import Bar, Findings, ratios
from benchmarks.places import CHILDREN
from benchmarks.stage import Ground, Stage, Wrong
from benchmarks.workloads.history import TEMPLATE, make_history
from rota.engine.maintenance.pruner import prune
from rota.model.retention import Retention
from rota.model.settings import Settings
from rota.store.database import Database

BAR = Bar("drain while old runs are removed / while none are", 0.8, 0.95, more=True)
OLD = "select count(*) from rota.outcomes where at < rota.clock() - interval '1 hour'"
YOUNG = "select count(*) from rota.outcomes where at > rota.clock() - interval '1 hour'"


def run(stage: Stage) -> Findings:
    sizes = stage.sizes
    findings = Findings(f"Retention beside {sizes.retention:,} finished jobs")
    make_history(stage, sizes.retention)
    keeping, pruning, removed, at_once = [], [], [], []
    try:
        for turn in range(sizes.pairs):
            # Alternate the order, so that the position in a pair is not mistaken for an effect of pruning.
            for keep in ("forever", "1h") if turn % 2 else ("1h", "forever"):
                rate, gone, speed = _rates(stage, keep)
                if keep == "forever":
                    keeping.append(rate)
                    continue
                pruning.append(rate)
                removed.append(gone)
                at_once.append(speed)
            stage.say(
                f"retention {turn + 1}: {pruning[-1]:,.0f}/s while {removed[-1]:,.0f}/s are removed, "
                f"keeping {keeping[-1]:,.0f}/s"
            )
    finally:
        stage.cluster.drop(TEMPLATE)

    name = stage.rota.name
    findings.add(f"{sizes.slice:,} while nothing is removed", name, "jobs/s", keeping)
    findings.add(f"{sizes.slice:,} while old ones are removed", name, "jobs/s", pruning)
    findings.add("removed meanwhile", name, "jobs/s", removed)
    findings.add("the rest, removed at once", name, "jobs/s", at_once)
    findings.judge(BAR, ratios(pruning, keeping))
    return findings


def _contender(stage: Stage, keep: str) -> Contender:
    return replace(
        stage.rota,
        command=(sys.executable, str(CHILDREN / "run_pruning.py")),
        environment={**stage.rota.environment, "ROTA_RETENTION": keep},
        finished=YOUNG,
    )


def _rates(stage: Stage, keep: str) -> tuple[float, float, float]:
    """Return jobs a second: drained, removed meanwhile, and removed afterwards."""
    contender = _contender(stage, keep)
    database = f"bench_{contender.name}"
    ground = Ground(stage, contender, database, stage.cluster.create(database, TEMPLATE))
    with ground.workers(1) as workers:
        workers.warm_up()
        numbers = ground.fill(stage.sizes.slice)
        ground.settle()
        before = ground.number(OLD)
        seconds = workers.drain(numbers)
    left = ground.number(OLD)
    speed = 0.0
    if keep != "forever":
        if left == before:
            raise Wrong("no run was removed during the drain")
        speed = asyncio.run(_remove(ground.dsn, keep, left))
    elif left != stage.sizes.retention:
        raise Wrong(f"{stage.sizes.retention - left} runs were removed that must be kept")
    ground.drop()
    return stage.sizes.slice / seconds, (before - left) / seconds, speed


async def _remove(dsn: str, keep: str, expected: int) -> float:
    database = Database(dsn, Settings())
    began, gone, position, more = time.monotonic(), 0, 0, True
    while more:
        pruned = await prune(database, Retention.parse(keep), position)
        if pruned is None:
            raise Wrong("another process is removing runs")
        gone, position, more = gone + pruned.runs, pruned.position, pruned.has_more
    seconds = time.monotonic() - began
    await database.close()
    if gone != expected:
        raise Wrong(f"{gone} of {expected} old runs were removed")
    return gone / seconds
