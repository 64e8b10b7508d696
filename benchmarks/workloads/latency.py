"""Latency: from a commit to the handler's first line, in another process that was idle.

Single jobs are sent with random gaps of 20 to 60 ms, so that the worker is idle each time. Both processes
read CLOCK_MONOTONIC, which is one clock on one machine. A peer that notifies inside its transaction can
start before the sender's await returns; its time is then smaller or even negative, so the time from before
the call is reported as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.contender import Contender
from benchmarks.findings import Bar, Findings, percentile
from benchmarks.process import Child
from benchmarks.stage import STEP, Ground, Stage, Wrong

MIDDLE = Bar("commit → handler start, p50", 1.0, 0.7, more=False, unit="ms")
TAIL = Bar("commit → handler start, p99", 5.0, 3.0, more=False, unit="ms")
RESULT = Bar("start then result(), p50", 4.0, 2.5, more=False, unit="ms")
GAPS = {"shortest": 0.02, "longest": 0.06}
WARM = 20


def run(stage: Stage) -> Findings:
    findings = Findings("Latency with an idle worker in another process")
    figures: dict[tuple[str, str], list[float]] = {}
    for turn in range(stage.sizes.pairs):
        for contender in stage.contenders:
            measured = _measure(stage, contender)
            for what, value in measured.items():
                figures.setdefault((what, contender.name), []).append(value)
            said = ", ".join(f"{what} {value:.2f} ms" for what, value in measured.items())
            stage.say(f"latency {turn + 1}: {contender.name} {said}")

    for (what, name), rounds in figures.items():
        findings.add(what, name, "ms", rounds)
    for bar in (MIDDLE, TAIL, RESULT):
        findings.judge(bar, figures[bar.what, stage.rota.name])
    return findings


def _measure(stage: Stage, contender: Contender) -> dict[str, float]:
    ground = stage.fresh(contender)
    with contender.child(ground.dsn) as sender:
        found = _start_times(stage, ground, sender)
        if contender is stage.rota:
            found[RESULT.what] = _result_time(stage, ground, sender)
    ground.drop()
    return found


def _start_times(stage: Stage, ground: Ground, sender: Child) -> dict[str, float]:
    count = stage.sizes.latency
    with idle_worker(ground, timed=True) as worker:
        sender.ask("send", STEP, first=0, count=WARM, **GAPS)
        sent = sender.ask("send", STEP, first=WARM, count=count, **GAPS)["sent"]
        _wait_until_empty(ground)
        worker.tell("stop")
        times = dict(worker.until("done", STEP)["times"])
    if len(times) != WARM + count:
        raise Wrong(f"{ground.contender.name}: {len(times)} jobs ran, not {WARM + count}")
    after_commit = [(times[n] - after) / 1e6 for n, _, after in sent]
    after_call = [(times[n] - before) / 1e6 for n, before, _ in sent]
    return {
        MIDDLE.what: percentile(after_commit, 0.50),
        TAIL.what: percentile(after_commit, 0.99),
        "call → handler start, p50": percentile(after_call, 0.50),
        "call → handler start, p99": percentile(after_call, 0.99),
    }


def _result_time(stage: Stage, ground: Ground, sender: Child) -> float:
    count = stage.sizes.results
    first = WARM + stage.sizes.latency
    with idle_worker(ground, timed=False) as worker:
        sender.ask("results", STEP, first=first, count=WARM, **GAPS)
        taken = sender.ask("results", STEP, first=first + WARM, count=count, **GAPS)["taken"]
        worker.tell("stop")
        worker.until("done", STEP)
    return percentile(taken, 0.50) / 1e6


@contextmanager
def idle_worker(ground: Ground, timed: bool) -> Iterator[Child]:
    contender = ground.contender
    with contender.child(ground.dsn) as worker:
        worker.tell("work", concurrency=contender.concurrency, haste=False, marks=[], timed=timed)
        worker.until("working", STEP)
        time.sleep(1)  # until it has registered, polled once and become idle
        yield worker


def _wait_until_empty(ground: Ground) -> None:
    deadline = time.monotonic() + 30
    while left := ground.number(ground.contender.waiting):
        if time.monotonic() > deadline:
            raise Wrong(f"{ground.contender.name}: {left} jobs were never run")
        time.sleep(0.1)
