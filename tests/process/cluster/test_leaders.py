"""One leader at a time under faults: processes killed, frozen and cut off, and the server restarted.

Processes act as often as they can while they consider themselves leader. Afterwards the test checks the
times and terms of all acts, and the writes of transactions that asserted their term. `make proofs` injects
some two hundred faults, directly and through a pooler; `make test` a dozen.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from support.leader_candidates import LEASE, LeaderCandidates, find_errors, run_candidates
from support.leader_checks import percentile, widest_overlap
from support.scale import scale

pytestmark = [pytest.mark.slow, pytest.mark.timeout(scale(120, 2400))]

OFTEN = {
    "kill": 40,
    "freeze": 35,
    "doze": 10,
    "terminate": 30,
    "cut": 25,
    "half open": 20,
    "black hole": 20,
    "stranded": 20,
    "restart": 10,
    "crash": 10,
}
"""Number of faults of each kind in the long form."""

FEW = {
    "ddd": ["kill", "freeze", "terminate", "half open", "stranded", "cut", "crash"],
    "pp": ["kill", "freeze"],
    "dp": ["freeze", "black hole", "kill"],
}
MANY = ["dddd", "pppp", "dpdp"]
"""One letter for each process: d for direct, p through a pooler."""


def plan() -> list[str]:
    kinds = [kind for kind, times in OFTEN.items() for _ in range(times)]
    random.shuffle(kinds)
    return kinds


def report(there: LeaderCandidates, ways: str) -> None:
    print(f"\n{ways}: seconds until somebody led again")
    widest = widest_overlap(there.notes, there.disruptions)
    for kind in OFTEN:
        took = [each.taken_over for each in there.disruptions if each.kind == kind]
        known = [each for each in took if each is not None]
        if took:
            print(
                f"  {kind:10} {len(took):3} times, {len(known):3} taken over: "
                f"p50 {percentile(known, 0.5):.2f}, p99 {percentile(known, 0.99):.2f}; "
                f"two believed it for {widest.get(kind, 0.0):.3f} at most"
            )


async def run_with_faults(directory: Path, ways: str, kinds: list[str]) -> None:
    async with run_candidates(directory, ways, lease=LEASE) as there:
        for kind in kinds:
            await there.disrupt(kind)
        # On a slow machine, wait until there are enough writes to check.
        async with asyncio.timeout(60):
            while len(await there.effects()) <= 5 * len(kinds):
                await asyncio.sleep(0.05)
        wrong = await find_errors(there)
        effects = len(await there.effects())
        report(there, ways)
    acts = sum(reign.acts for each in there.notes for reign in each.reigns.values())
    print(f"  {acts} acts, {effects} effects, {there.term} terms")

    assert not wrong, "\n".join(wrong)
    assert acts > 20 * len(kinds)
    assert effects > 5 * len(kinds)
    assert len([each for each in there.notes if each.reigns]) > 1
    taken = Counter(each.kind for each in there.disruptions if each.taken_over is not None)
    for kind, times in Counter(kinds).items():
        assert taken[kind] == times or kind in there.harmless


@pytest.mark.parametrize("ways", scale(["a few"], MANY))
async def test_leaders_under_faults_act_one_at_a_time(tmp_path: Path, ways: str) -> None:
    trials = scale(FEW, {ways: plan()})
    async with asyncio.TaskGroup() as at_once:
        for name, kinds in trials.items():
            at_once.create_task(run_with_faults(tmp_path, name, kinds))
