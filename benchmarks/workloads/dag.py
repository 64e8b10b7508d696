"""DAG: 5,000 runs of a graph of ten jobs (1 → 4 → 4 → 1, 24 edges), against as many jobs without edges.

Each layer receives all results of the layer before as parameters. A second figure is the same graph with
order only (`after=`). All three are drained as in `drain`: one worker process, from the command "work" to
the last stored completion. One `start_many` in a new process starts all runs; the flat jobs are started in
calls of 20,000.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.contender import Contender, flows
from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import Stage

BAR = Bar("DAG of 10 jobs / flat drain", 0.25, 0.5, more=True)
JOBS = 10


@dataclass
class _Rates:
    """Jobs a second, for each round."""

    contender: Contender
    what: str
    started: list[float] = field(default_factory=list)
    drained: list[float] = field(default_factory=list)


def run(stage: Stage) -> Findings:
    runs = stage.sizes.graphs
    findings = Findings(f"DAG: {runs:,} runs of {JOBS} jobs, one worker process")
    flat = _Rates(stage.rota, f"{runs * JOBS:,} flat jobs")
    given = _Rates(flows("layers", JOBS), f"{runs:,} runs, results passed on")
    after = _Rates(flows("ordered", JOBS), f"{runs:,} runs, order only")
    rates = (flat, given, after)
    for turn in range(stage.sizes.pairs):
        for each in rates:
            _measure(stage, each)
            stage.say(
                f"dag {turn + 1}: {each.what} {each.drained[-1]:,.0f}/s, "
                f"started at {each.started[-1]:,.0f}/s"
            )

    name = stage.rota.name
    for each in rates:
        findings.add(f"drain, {each.what}", name, "jobs/s", each.drained)
    for each in (given, after):
        findings.add(f"{each.what} / flat", name, "×", ratios(each.drained, flat.drained))
    for each in rates:
        findings.add(f"start_many, {each.what}", name, "jobs/s", each.started)
    findings.judge(BAR, ratios(given.drained, flat.drained))
    return findings


def _measure(stage: Stage, rates: _Rates) -> None:
    jobs = stage.sizes.graphs * JOBS
    ground = stage.fresh(rates.contender)
    with ground.workers(1) as workers:
        workers.warm_up()
        numbers = ground.fill(jobs // rates.contender.jobs)
        ground.settle()
        seconds = workers.drain(numbers)
    rates.started.append(jobs / ground.filled_in)
    rates.drained.append(jobs / seconds)
    ground.drop()
