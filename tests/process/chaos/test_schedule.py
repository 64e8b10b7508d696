"""A seed determines the faults and their times."""

from __future__ import annotations

import pytest

from chaos import schedule
from chaos.phases import FULL, PHASES, Phase
from chaos.schedule import Plan, Planned


def planned_faults(phase: Phase, seed: str, seconds: float) -> list[Planned]:
    return schedule.schedule(phase.faults, seed, Plan(seconds, phase.workers, 2.0))


@pytest.mark.parametrize("phase", PHASES.values(), ids=lambda phase: phase.name)
def test_fault_schedule_is_determined_by_its_seed(phase: Phase) -> None:
    first = planned_faults(phase, "1", 60)
    assert first == planned_faults(phase, "1", 60)
    assert all(0 <= each.at < 60 for each in first)
    assert [each.at for each in first] == sorted(each.at for each in first)
    if phase.faults is not schedule.no_faults:
        assert first
        assert first != planned_faults(phase, "2", 60)


def test_fault_schedule_freezes_leave_two_workers_running() -> None:
    phase = PHASES["freeze"]
    frozen = [(each.at, each.at + each.lasts) for each in planned_faults(phase, "1", 60)]
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
def test_fault_schedule_full_run_has_enough_faults(name: str, kind: str, least: int) -> None:
    phase = PHASES[name]
    found = planned_faults(phase, "1", FULL * phase.share)
    assert sum(each.kind == kind for each in found) >= least
