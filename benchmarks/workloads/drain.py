"""Drain: a full queue of no-op jobs, from the command "work" to the last stored completion.

Rota keeps its history meanwhile (arguments and outcomes remain); graphile-worker deletes its jobs, pgqueuer
moves them to a log. Afterwards the tables and the handlers' own counts must agree that each job ran once
and none is left.
"""

from __future__ import annotations

from benchmarks.contender import Contender
from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import Stage

BARS = {
    "graphile": Bar("drain, one process / graphile-worker", 1.3, 2.0, more=True),
    "pgqueuer": Bar("drain, one process / pgqueuer", 3.0, None, more=True),
}


def run_one(stage: Stage) -> Findings:
    return _run(stage, 1)


def run_two(stage: Stage) -> Findings:
    return _run(stage, 2)


def _run(stage: Stage, processes: int) -> Findings:
    words = {1: "one worker process", 2: "two worker processes"}[processes]
    findings = Findings(f"Drain of no-op jobs, {words}")
    rates: dict[str, list[float]] = {contender.name: [] for contender in stage.contenders}
    for turn in range(stage.sizes.pairs):
        for contender in stage.contenders:
            rates[contender.name].append(_rate(stage, contender, processes))
            stage.say(
                f"drain × {processes} {turn + 1}: "
                f"{contender.name} {rates[contender.name][-1]:,.0f}/s"
            )

    ours = rates[stage.rota.name]
    for contender in stage.contenders:
        name = contender.name
        findings.add(f"drain of {stage.sizes.drain[name]:,}", name, "jobs/s", rates[name])
    for contender in stage.peers:
        findings.add(f"rota / {contender.name}", "", "×", ratios(ours, rates[contender.name]))
        if processes == 1 and (bar := BARS.get(contender.name)):
            findings.judge(bar, ratios(ours, rates[contender.name]))
    return findings


def _rate(stage: Stage, contender: Contender, processes: int) -> float:
    jobs = stage.sizes.drain[contender.name]
    ground = stage.fresh(contender)
    with ground.workers(processes) as workers:
        workers.warm_up()
        numbers = ground.fill(jobs)
        ground.settle()
        seconds = workers.drain(numbers)
    ground.drop()
    return jobs / seconds
