"""A seed determines the faults and their times."""

from __future__ import annotations

import pytest

from . import schedule
from .phases import FULL, PHASES, Phase
from .schedule import Plan, Planned


def planned(phase: Phase, seed: str, seconds: float) -> list[Planned]:
    return schedule.schedule(phase.faults, seed, Plan(seconds, phase.workers, 2.0))


@pytest.mark.parametrize("phase", PHASES.values(), ids=lambda phase: phase.name)
def test_the_same_seed_breaks_the_same_things_and_another_one_others(phase: Phase) -> None:
    first = planned(phase, "1", 60)
    assert first == planned(phase, "1", 60)
    assert all(0 <= each.at < 60 for each in first)
    assert [each.at for each in first] == sorted(each.at for each in first)
    if phase.faults is not schedule.nothing:
        assert first
        assert first != planned(phase, "2", 60)


def test_two_are_left_to_notice_when_the_others_are_frozen() -> None:
    phase = PHASES["freeze"]
    frozen = [(each.at, each.at + each.lasts) for each in planned(phase, "1", 60)]
    for moment, _ in frozen:
        assert sum(begin <= moment < end for begin, end in frozen) <= phase.workers - 2


@pytest.mark.parametrize(
    ("name", "kind", "least"),
    [
        ("kill", "kill", 1100),
        ("freeze", "freeze", 400),
        ("crash", "crash", 40),
        ("cut", "cut", 450),
    ],
)
def test_a_run_of_full_length_has_faults_enough_for_its_figures(
    name: str, kind: str, least: int
) -> None:
    phase = PHASES[name]
    found = planned(phase, "1", FULL * phase.share)
    assert sum(each.kind == kind for each in found) >= least
