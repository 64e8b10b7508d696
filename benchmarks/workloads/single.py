"""Single enqueue, awaited, against a bare one-row prepared INSERT.

Job and row alternate in one process, each on its own connection with the same settings, so that both have
the same disk conditions. The medians are compared.
"""

from __future__ import annotations

from statistics import median

from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import STEP, Stage, Wrong

BAR = Bar("single enqueue / bare INSERT", 1.3, 1.1, more=False)


def run(stage: Stage) -> Findings:
    findings = Findings("Single enqueue awaited, beside a bare one-row INSERT")
    own: dict[str, list[float]] = {contender.name: [] for contender in stage.contenders}
    bare: dict[str, list[float]] = {contender.name: [] for contender in stage.contenders}
    warm, count = 100, stage.sizes.singles
    for turn in range(stage.sizes.pairs):
        for contender in stage.contenders:
            ground = stage.fresh(contender)
            with contender.child(ground.dsn) as child:
                child.ask("singles", STEP, first=0, count=warm)
                answer = child.ask("singles", STEP, first=warm, count=count)
            if (queued := ground.number(contender.waiting)) != warm + count:
                raise Wrong(f"{contender.name}: {queued} jobs are queued, not {warm + count}")
            ground.drop()
            own[contender.name].append(median(answer["own"]) / 1e6)
            bare[contender.name].append(median(answer["bare"]) / 1e6)
            stage.say(
                f"single {turn + 1}: {contender.name} {own[contender.name][-1]:.2f} ms, "
                f"bare {bare[contender.name][-1]:.2f} ms"
            )

    for name, rounds in own.items():
        findings.add("single enqueue, median", name, "ms", rounds)
        findings.add("bare INSERT beside it, median", name, "ms", bare[name])
        findings.add("ratio", name, "×", ratios(rounds, bare[name]))
    findings.judge(BAR, ratios(own[stage.rota.name], bare[stage.rota.name]))
    return findings
