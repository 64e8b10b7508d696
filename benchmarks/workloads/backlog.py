"""Backlog: the first 200,000 of a million queued jobs, against 200,000 jobs in an empty queue.

Both are timed from the command "work" to the 200,000th handler, because a worker with a backlog does not
stop there.
"""

from __future__ import annotations

from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import Stage

BAR = Bar("drain with a backlog / without", 0.8, 0.95, more=True)


def run(stage: Stage) -> Findings:
    sizes = stage.sizes
    findings = Findings(f"Backlog of {sizes.backlog:,}")
    alone, among = [], []
    for turn in range(sizes.pairs):
        alone.append(_rate(stage, sizes.slice))
        among.append(_rate(stage, sizes.backlog))
        stage.say(f"backlog {turn + 1}: {among[-1]:,.0f}/s, alone {alone[-1]:,.0f}/s")

    findings.add(f"{sizes.slice:,} alone", stage.rota.name, "jobs/s", alone)
    what = f"first {sizes.slice:,} of {sizes.backlog:,}"
    findings.add(what, stage.rota.name, "jobs/s", among)
    findings.judge(BAR, ratios(among, alone))
    return findings


def _rate(stage: Stage, queued: int) -> float:
    ground = stage.fresh(stage.rota)
    with ground.workers(1) as workers:
        workers.warm_up()
        numbers = ground.fill(queued)
        ground.settle()
        [seconds] = workers.reach([stage.sizes.slice], numbers)
    ground.drop()
    return stage.sizes.slice / seconds
