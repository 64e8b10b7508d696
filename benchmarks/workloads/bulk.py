"""Bulk enqueue: one call of 20,000 jobs, timed from values in the language until they are durable.

Each contender uses its own fastest call. The baseline is one `insert … select unnest` of the same number of
rows into a table with only a primary key.
"""

from __future__ import annotations

from statistics import median

from benchmarks.contender import Contender, plain
from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import STEP, Stage, Wrong

AGAINST_PEERS = Bar("bulk enqueue / best peer", 2.0, None, more=True)
AGAINST_PLAIN = Bar("bulk enqueue / plain INSERT", None, 0.5, more=True)


def run(stage: Stage) -> Findings:
    findings = Findings(f"Bulk enqueue, one call of {stage.sizes.chunk:,}")
    contenders = [*stage.contenders, plain()]
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for turn in range(stage.sizes.pairs):
        for contender in contenders:
            rates[contender.name].append(_rate(stage, contender))
            stage.say(f"bulk {turn + 1}: {contender.name} {rates[contender.name][-1]:,.0f}/s")

    for name, rounds in rates.items():
        findings.add("bulk enqueue", name, "jobs/s", rounds)
    ours = rates[stage.rota.name]
    if stage.peers:
        best = [max(turn) for turn in zip(*(rates[p.name] for p in stage.peers), strict=True)]
        findings.judge(AGAINST_PEERS, ratios(ours, best))
    findings.judge(AGAINST_PLAIN, ratios(ours, rates["plain INSERT"]))
    return findings


def _rate(stage: Stage, contender: Contender) -> float:
    ground = stage.fresh(contender)
    warm, count, calls = stage.sizes.warm, stage.sizes.chunk, stage.sizes.bulk_calls
    with contender.child(ground.dsn) as child:
        child.ask("enqueue", STEP, first=0, count=warm, calls=1)
        ground.settle()
        answer = child.ask("enqueue", STEP * calls, first=warm, count=count, calls=calls)
    queued = ground.number(contender.waiting)
    ground.drop()
    if queued != warm + count * calls:
        raise Wrong(f"{contender.name}: {queued} jobs are queued, not {warm + count * calls}")
    return count / float(median(answer["seconds"]))
