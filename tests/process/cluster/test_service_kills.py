"""Monitor service on three instances, with repeated kills of the instance that runs it.

Iterations never overlap and their numbers never repeat. Another instance takes over within seconds. The
outcome of each iteration is recorded. `make test` runs it for a quarter of a minute, `make proofs` for five
minutes.
"""

from __future__ import annotations

import asyncio
import math
import random
import signal
from typing import Any

import pytest

from support.scale import scale
from support.service_instances import (
    Iteration,
    ServiceInstances,
    gaps,
    misnumbered,
    now,
    overlaps,
    percentiles,
    unrecorded,
)
from support.service_kills import find_faults, read_records, until

SECONDS, BETWEEN, LEAST = scale((8, 2.0, 3), (300, 10.0, 25))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]


def cut_iterations(fleet: ServiceInstances, kills: list[tuple[int, float]]) -> list[Any]:
    """Return the iterations that a kill has interrupted."""
    died = dict(kills)
    return [each for each in fleet.look() if each.ended is None and each.pid in died]


async def kill_repeatedly(
    fleet: ServiceInstances, seconds: float, between: float
) -> list[tuple[int, float]]:
    """Kill the running instance and start another one; return pid and last time alive for each kill."""
    kills: list[tuple[int, float]] = []
    end = now() + seconds
    while now() < end or len(kills) < LEAST or not cut_iterations(fleet, kills):
        await asyncio.sleep(between * random.uniform(0.8, 1.2))
        if len(kills) % 2:  # every other kill is in the middle of an iteration
            await until(lambda: fleet.look()[-1].ended is None)
        victim = fleet.runner()
        if victim is not None:
            kills.append((victim.pid, fleet.kill(victim)))
            fleet.start()
        await until(lambda: fleet.runner() is not None)
    return kills


async def test_service_with_repeated_kills_runs_on_one_instance_at_a_time(
    monitors: Any, rota_dsn: str
) -> None:
    fleet = monitors()
    fleet.start(3)
    await until(lambda: len(fleet.look()) > 2 and fleet.all_are_up)
    kills = await kill_repeatedly(fleet, SECONDS, BETWEEN)
    await until(lambda: fleet.look()[-1].began > kills[-1][1] and fleet.all_are_up)
    assert set(fleet.stop()) == {0}

    found = await find_faults(fleet, rota_dsn)
    assert not found, "\n".join(found)
    iterations = fleet.look()
    cut = cut_iterations(fleet, kills)
    took = gaps(iterations, kills)
    p50, p99, most = percentiles(took)
    print(
        f"{len(kills)} kills of who ran it, {len(cut)} in the middle, {len(iterations)} iterations on "
        f"{len({each.pid for each in iterations})} instances; elsewhere after p50 {p50:.2f} s, p99 "
        f"{p99:.2f} s, at most {most:.2f} s"
    )
    # A bar of `make proofs`: the short form may run beside anything.
    assert p99 < scale(math.inf, 5)
    # The faults did happen.
    assert len(kills) >= LEAST
    assert len(cut) >= scale(1, 5)
    assert len(iterations) > len(kills) * 2


async def test_service_frozen_iteration_is_refused_and_recorded_as_lost(
    monitors: Any, rota_dsn: str
) -> None:
    fleet = monitors(lease=2, takes=0.6, every=0.8)
    fleet.start(2)
    await until(lambda: any(each.ended for each in fleet.look()) and fleet.all_are_up)
    await until(lambda: fleet.look()[-1].ended is None)
    victim = fleet.runner()
    victim.process.send_signal(signal.SIGSTOP)
    frozen = now()
    await asyncio.sleep(0.1)
    last = fleet.look()[-1]
    try:
        await until(lambda: fleet.runner() is not victim)
        elsewhere = fleet.look()[-1].began - frozen
        print(f"elsewhere after {elsewhere:.2f} s")
        assert elsewhere < scale(math.inf, 2 + 2.5)
    finally:
        victim.process.send_signal(signal.SIGCONT)
    awake = now()
    key = (last.service, last.number)
    await until(lambda: fleet.look() and victim.ran.get(key), within=60)
    print(f"told within {now() - awake:.2f} s")
    assert victim.ran[key] == "lost"
    assert victim.iterations[key].refused
    assert set(fleet.stop()) == {0}
    fleet.look()
    # The writes of the frozen instance were refused; without its iteration the notes have no errors.
    del victim.iterations[key]
    found = await find_faults(fleet, rota_dsn)
    assert not found, "\n".join(found)
    recorded, effects = await read_records(rota_dsn)
    assert recorded[key][2] == "lost"
    assert key not in {(service, number) for service, number, _, _ in effects}


def test_service_checks_detect_each_fault() -> None:
    one = [
        Iteration("m", 1, 1, 11, 1.0, 1.5),
        Iteration("m", 2, 1, 11, 2.0),
        Iteration("m", 3, 2, 12, 4.0, 4.2),
    ]
    recorded = {
        ("m", 1): (11, 1, "succeeded"),
        ("m", 2): (11, 1, "lost"),
        ("m", 3): (12, 2, "succeeded"),
    }
    effects = [("m", 1, 1, 11), ("m", 3, 2, 12)]
    died = {11: 2.5}

    def all_of(iterations: Any, recorded: Any, effects: Any) -> list[str]:
        return [
            *overlaps(iterations, died, 9.0),
            *misnumbered(iterations),
            *unrecorded(iterations, recorded, effects, died),
        ]

    assert all_of(one, recorded, effects) == []
    early = [*one[:2], Iteration("m", 3, 2, 12, 2.4, 4.2)]
    assert "3 of m began in 12 while 2 ran" in all_of(early, recorded, effects)[0]
    assert all_of([one[0], one[0]], recorded, effects)
    assert all_of([*one[:2], Iteration("m", 3, 0, 12, 4.0, 4.2)], recorded, effects)
    for wrong in ((12, 1, "lost"), (11, 2, "lost"), (11, 1, "succeeded"), (11, 1, None)):
        assert all_of(one, {**recorded, ("m", 2): wrong}, effects), wrong
    assert all_of(one, recorded, effects[:1])
    assert all_of(one, recorded, [*effects, effects[0]])
    assert all_of(one, recorded, [*effects, ("m", 9, 1, 11)])
    assert gaps(one, [(11, 2.5)]) == [1.5]
