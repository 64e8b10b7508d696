"""Chain and diamond: the time of one edge on an idle system.

A chain of 1,000 jobs, from its first handler to its last stored completion, divided by its links. Then
diamonds (1 → 2 → 1, results passed on), started one by one with an idle worker in another process and the
gaps of `latency`: from before `start` until `result()` has returned.
"""

from __future__ import annotations

from benchmarks.contender import flows
from benchmarks.findings import Findings, percentile
from benchmarks.stage import STEP, Stage
from benchmarks.workloads.latency import GAPS, WARM, idle_worker


def run(stage: Stage) -> Findings:
    sizes = stage.sizes
    findings = Findings("Chain and diamond on an idle system")
    links, middles, tails = [], [], []
    for turn in range(sizes.pairs):
        links.append(_link(stage))
        taken = _diamonds(stage)
        middles.append(percentile(taken, 0.50))
        tails.append(percentile(taken, 0.99))
        stage.say(
            f"chain {turn + 1}: {links[-1]:.2f} ms a link, "
            f"diamond {middles[-1]:.2f} ms, p99 {tails[-1]:.2f} ms"
        )

    name = stage.rota.name
    findings.add(f"chain {sizes.chain:,} deep, a link", name, "ms", links)
    findings.add("diamond, start then result(), p50", name, "ms", middles)
    findings.add("diamond, start then result(), p99", name, "ms", tails)
    return findings


def _link(stage: Stage) -> float:
    deep = stage.sizes.chain
    ground = stage.fresh(flows("chain", deep))
    with ground.workers(1) as workers:
        workers.warm_up()
        numbers = ground.fill(1)
        ground.settle()
        seconds = workers.drain(numbers, since_first=True)
    ground.drop()
    return 1000 * seconds / deep


def _diamonds(stage: Stage) -> list[float]:
    """Return the milliseconds of each diamond."""
    ground = stage.fresh(flows("diamond", 4))
    with ground.contender.child(ground.dsn) as sender, idle_worker(ground, timed=False) as worker:
        sender.ask("results", STEP, first=0, count=WARM, **GAPS)
        taken = sender.ask("results", STEP, first=WARM, count=stage.sizes.diamonds, **GAPS)["taken"]
        worker.tell("stop")
        worker.until("done", STEP)
    ground.drop()
    return [each / 1e6 for each in taken]
