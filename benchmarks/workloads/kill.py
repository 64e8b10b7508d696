"""Kill: from SIGKILL of a worker to its job's code running in another process.

Three workers are idle for the whole measurement. More workers start, wait until the idle ones have observed
them, hold one endless job each, and are killed one by one at random moments. The job reports when its code
begins; in another worker it ends at once. All settings are defaults: a heartbeat every 5 s, dead after 20 s
without one. On a direct connection the released session lock reveals the death. Through a pooler there is
no session lock, and only the missing heartbeats reveal it.

Each job must have begun twice, once in the killed worker and once in one that stays, and only killed
workers may have been declared dead.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks.contender import Contender
from benchmarks.findings import Bar, Findings, percentile
from benchmarks.places import CHILDREN
from benchmarks.pooler import installed, pooler
from benchmarks.process import Child
from benchmarks.stage import STEP, Ground, Stage, Wrong
from rota.model.settings import Settings

STAY = 3
CONNECT = 1.0  # seconds for a new worker to register and become idle
SEEN = 3.0  # seconds for the staying workers to observe its lock: of seven, each checks every 1.5 s
FOR_EVER = "3600"
DEFAULTS = Settings()
DEAD = "select count(*) from rota.workers where state = 'dead'"


@dataclass(frozen=True)
class Way:
    name: str
    bar: float
    beyond: float | None
    victims: int  # running at the same time
    within: float  # seconds in which they are killed
    patience: float  # seconds after that until the last job must have begun


DIRECT = Way("", 4.0, 2.0, victims=4, within=4.0, patience=30.0)
POOLED = Way(", through PgBouncer", 25.0, None, victims=6, within=10.0, patience=60.0)


def run(stage: Stage) -> Findings:
    findings = Findings(f"SIGKILL of a worker, {STAY} more workers are running")
    ground = stage.fresh(_contender(stage, 1))
    _judge(stage, findings, DIRECT, _measure(ground, ground.dsn, DIRECT, stage.sizes.kills))
    ground.drop()
    if program := installed():
        ground = stage.fresh(_contender(stage, 1))
        with pooler(program, ground.dsn) as dsn:
            taken = _measure(ground, dsn, POOLED, stage.sizes.pooled_kills)
        _judge(stage, findings, POOLED, taken)
        ground.drop()
    else:
        findings.notes.append("Not measured through PgBouncer: it is not installed.")
        stage.say("kill: PgBouncer is not installed")
    return findings


def _judge(stage: Stage, findings: Findings, way: Way, taken: Sequence[float]) -> None:
    what, name = f"SIGKILL → running elsewhere{way.name}", stage.rota.name
    worst = percentile(taken, 0.99)
    findings.add(f"{what}, p50", name, "s", [percentile(taken, 0.50)])
    findings.add(f"{what}, p99 of {len(taken)}", name, "s", [worst])
    findings.add(f"{what}, longest", name, "s", [max(taken)])
    findings.judge(Bar(f"{what}, p99", way.bar, way.beyond, more=False, unit="s"), [worst])


def _contender(stage: Stage, queues: int, only: int | None = None) -> Contender:
    """Return Rota serving `queues` queues; or only one of them, with a job that blocks."""
    names = [f"q{number}" for number in range(queues)]
    environment = {
        "BENCH_QUEUES": ",".join(names if only is None else [names[only]]),
        "BENCH_HOLD": "0" if only is None else FOR_EVER,
        # Explicit defaults, independent of the environment, and no connection around the pooler.
        "ROTA_HEARTBEAT_INTERVAL": str(DEFAULTS.heartbeat_interval),
        "ROTA_DEAD_AFTER": str(DEFAULTS.dead_after),
        "ROTA_DIRECT_URL": "",
        "ROTA_DIRECT_URL_FILE": "",
    }
    return replace(
        stage.rota,
        command=(sys.executable, str(CHILDREN / "run_mortal.py")),
        environment={**stage.rota.environment, **environment},
    )


def _measure(ground: Ground, dsn: str, way: Way, kills: int) -> list[float]:
    """Return the seconds of each kill."""
    stage = ground.stage
    whole = _contender(stage, way.victims)
    taken: dict[int, float] = {}
    with ExitStack() as stack:
        sender = stack.enter_context(whole.child(ground.dsn))
        stay = [stack.enter_context(whole.child(dsn)) for _ in range(STAY)]
        _begin(stay, whole.concurrency)
        for first in range(0, kills, way.victims):
            some = _kill_some(stage, dsn, way, sender, stay, first)
            said = " ".join(f"{each:.2f}" for each in sorted(some.values()))
            stage.say(f"kill {first + 1} to {first + len(some)}{way.name}: {said} s")
            taken |= some
        for child in stay:
            child.tell("stop")
        began = sum(child.until("done", STEP)["count"] for child in stay)
    _check(ground, len(taken), began)
    return list(taken.values())


def _kill_some(
    stage: Stage, dsn: str, way: Way, sender: Child, stay: Sequence[Child], first: int
) -> dict[int, float]:
    """Return the seconds from the kill to the job's next start, by the job's number."""
    with ExitStack() as stack:
        victims = {
            first + place: stack.enter_context(_contender(stage, way.victims, place).child(dsn))
            for place in range(way.victims)
        }
        _begin(victims.values(), stage.rota.concurrency)
        time.sleep(CONNECT)
        with _still(stay):
            sender.ask("send", STEP, first=first, count=way.victims, shortest=0, longest=0)
            for number, victim in victims.items():
                if victim.until("started", STEP)["started"] != number:
                    raise Wrong(f"job {number} began in another worker than planned")
        time.sleep(SEEN)
        killed = dict(_kill(victims, way.within, random.Random(first)))
        began = _beginnings(stay, set(victims), way.patience)
    return {number: (began[number] - killed[number]) / 1e9 for number in killed}


def _begin(workers: Collection[Child], concurrency: int) -> None:
    for child in workers:
        child.tell("work", concurrency=concurrency, haste=False, marks=[], timed=False)
    for child in workers:
        child.until("working", STEP)


@contextmanager
def _still(stay: Sequence[Child]) -> Iterator[None]:
    """Freeze the staying workers, so that a new job begins in the worker that will be killed."""
    try:
        for child in stay:
            child.freeze()
        yield
    finally:
        for child in stay:
            child.thaw()


def _kill(
    victims: dict[int, Child], within: float, chance: random.Random
) -> Iterator[tuple[int, int]]:
    """Kill at random moments; yield the job's number and the time of each kill."""
    began = time.monotonic()
    moments = sorted((chance.uniform(0, within), number) for number in victims)
    for moment, number in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        yield number, victims[number].kill()


def _beginnings(stay: Sequence[Child], numbers: set[int], within: float) -> dict[int, int]:
    """Return the time at which each job began in a staying worker. Reports may have arrived earlier."""
    began: dict[int, int] = {}
    deadline = time.monotonic() + within
    while numbers - began.keys():
        for child in stay:
            answer = child.poll(0.02)
            if answer and "started" in answer:
                began[answer["started"]] = answer["at"]
        if time.monotonic() > deadline:
            complaints = "".join(child.complaint() for child in stay)
            lost = len(numbers - began.keys())
            raise Wrong(f"{lost} jobs of killed workers did not begin elsewhere{complaints}")
    return began


def _check(ground: Ground, kills: int, began: int) -> None:
    """Check that each job began once more and ended, and that only killed workers are dead."""
    if began != kills:
        raise Wrong(f"{kills} jobs began {began} times after the kill")
    if left := ground.number(ground.contender.waiting):
        raise Wrong(f"{left} jobs are left")
    assert ground.contender.finished is not None
    if (finished := ground.number(ground.contender.finished)) != kills:
        raise Wrong(f"{finished} of {kills} jobs are recorded")
    if (dead := ground.number(DEAD)) != kills:
        raise Wrong(f"{dead} workers were declared dead, but {kills} were killed")
