"""Wide: one run of 10,000 jobs (1 → many → 1), against as many jobs without edges.

A drain takes a fraction of a second, so start-up would blur the comparison. All are timed from the first
handler to the last stored completion, and a round is the median of three drains by one process, after a
first one that is discarded.

The flow is built in a loop: 10,000 jobs including its ends, the maximum of a run. `ctx.map` starts 10,000
child jobs after its first line, so starting them is included in its time, while the flow and the flat jobs
were started in advance. A worker claims jobs by the names of its tasks, and a flow built in a loop has
10,000 names. Flat jobs in a worker that knows the flow show the cost of these names for other work.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from benchmarks.contender import Contender, flows
from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import Stage

BAR = Bar("one wide run / flat drain", 0.5, 0.8, more=True)


def run(stage: Stage) -> Findings:
    jobs = stage.sizes.wide
    findings = Findings(f"One run of {jobs:,} jobs, one worker process")
    flat, flow, calls, beside = (
        f"{jobs:,} flat jobs",
        f"flow of {jobs:,} jobs",
        f"ctx.map of {jobs:,} calls",
        f"{jobs:,} flat jobs, the flow known",
    )
    contenders = {
        flat: stage.rota,
        flow: flows("wide", jobs),
        calls: flows("mapped", jobs + 1),
        beside: _beside(jobs),
    }
    rates: dict[str, list[float]] = {what: [] for what in contenders}
    for turn in range(stage.sizes.pairs):
        for what, contender in contenders.items():
            rates[what].append(_rate(stage, contender))
            stage.say(f"wide {turn + 1}: {what} {rates[what][-1]:,.0f}/s")

    for what, rounds in rates.items():
        findings.add(what, stage.rota.name, "jobs/s", rounds)
    for what in (flow, calls, beside):
        findings.add(f"{what} / flat", stage.rota.name, "×", ratios(rates[what], rates[flat]))
    findings.judge(BAR, ratios(rates[flow], rates[flat]))
    return findings


def _beside(jobs: int) -> Contender:
    """Return flat jobs in a process that has the wide flow among its tasks."""
    environment = {"BENCH_SHAPE": "beside", "BENCH_KNOWN": str(jobs)}
    return replace(flows("beside", 1), environment=environment)


def _rate(stage: Stage, contender: Contender) -> float:
    runs = max(1, stage.sizes.wide // contender.jobs)
    ground = stage.fresh(contender)
    seconds = []
    with ground.workers(1) as workers:
        for _ in range(1 + stage.sizes.wide_drains):
            numbers = ground.fill(runs)
            ground.settle()
            seconds.append(workers.drain(numbers, since_first=True))
    ground.drop()
    return runs * contender.jobs / median(seconds[1:])
