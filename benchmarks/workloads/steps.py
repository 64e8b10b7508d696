"""Durable steps: 300 runs of ten sequential steps, from the first step to the last stored run.

A step counts and returns a small document, which is stored and passed to the next step. The runs are queued
in advance; each contender is one process. A drain takes between a fraction of a second and some seconds, so
a round is the median of three drains by one process, after a first one that is discarded.

Each step must have run once and be recorded once, in a run that succeeded.
"""

from __future__ import annotations

from statistics import median

from benchmarks.contender import STEPS, Contender, steps
from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import Stage

AGAINST = {"absurd": Bar("durable steps / absurd", 8.0, None, more=True)}
ALONE = Bar("durable steps", None, 10_000, more=True, unit="/s")


def run(stage: Stage) -> Findings:
    runs = stage.sizes.step_runs
    findings = Findings(f"Durable steps: {runs:,} runs of {STEPS}, one worker process")
    rota = steps()
    contenders = [*stage.durable[:1], rota, *stage.durable[1:]]
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for turn in range(stage.sizes.pairs):
        for contender in contenders:
            rates[contender.name].append(_rate(stage, contender))
            stage.say(f"steps {turn + 1}: {contender.name} {rates[contender.name][-1]:,.0f}/s")

    ours = rates[rota.name]
    for contender in contenders:
        findings.add(f"{runs * STEPS:,} steps", contender.name, "steps/s", rates[contender.name])
    for contender in stage.durable:
        theirs = ratios(ours, rates[contender.name])
        findings.add(f"rota / {contender.name}", "", "×", theirs)
        if bar := AGAINST.get(contender.name):
            findings.judge(bar, theirs)
    findings.judge(ALONE, ours)
    return findings


def _rate(stage: Stage, contender: Contender) -> float:
    """Return steps a second."""
    runs = stage.sizes.step_runs
    ground = stage.fresh(contender)
    seconds = []
    with ground.workers(1) as workers:
        for _ in range(1 + stage.sizes.step_drains):
            numbers = ground.fill(runs)
            ground.settle()
            seconds.append(workers.drain(numbers, since_first=True))
    ground.drop()
    return runs * STEPS / median(seconds[1:])
