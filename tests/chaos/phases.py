"""Phases: the faults of each, its jobs, and the events it must have seen to count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import schedule
from .schedule import Make

FULL = 2100.0
"""Seconds from which a run must reach the full figures."""

BEAT = 0.5
DEAD_AFTER = 2.0
WORKERS = 6

EVERYTHING = {
    "noop": 20,
    "nap": 8,
    "block": 4,
    "external": 6,
    "effect": 12,
    "walk": 3,
    "flaky": 3,
    "hopeless": 1,
    "mapper": 2,
    "diamond": 3,
    "fan": 2,
    "long": 1,
}

SLOW = {**EVERYTHING, "noop": 8, "nap": 14, "block": 12, "long": 3}
"""Jobs that are likely to be running when their worker is frozen."""


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    share: float
    """Share of the time of a run."""
    faults: Make
    saw: Mapping[str, int]
    """Least counts of events, in a run of any length."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Additional least counts in a run of full length."""
    mix: Mapping[str, int] = field(default_factory=lambda: EVERYTHING)
    rate: float = 90.0
    workers: int = WORKERS
    proxied: bool = False
    megabytes: int | None = None
    """Memory limit of a worker, where control groups are available."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of its workers that differ from the defaults."""
    quiet_within: float = 60.0
    recovery_target: float | None = None
    """Seconds from a kill until its jobs are claimed elsewhere, in 99 of 100 cases."""

    def needs(self, full: bool) -> Mapping[str, int]:
        return {**self.saw, **self.figures} if full else self.saw


PHASES = {
    phase.name: phase
    for phase in (
        Phase(
            "kill",
            0.38,
            schedule.kills,
            saw={"kills": 5, "reaps": 3, "recovered": 3, "jobs": 200},
            figures={"kills": 1000, "jobs": 50_000},
            recovery_target=3.5,
        ),
        Phase(
            "freeze",
            0.20,
            schedule.freezes,
            saw={"freezes": 4, "reaps": 2, "stale": 1, "reborn": 1},
            figures={"freezes": 300, "stale": 100},
            mix=SLOW,
            workers=8,
        ),
        Phase(
            "crash",
            0.13,
            schedule.crashes,
            saw={"crashes": 2},
            figures={"crashes": 30},
        ),
        Phase(
            "cut",
            0.12,
            schedule.cuts,
            saw={"cuts": 10, "cuts_committed": 3, "cuts_uncommitted": 1},
            figures={"cuts": 300, "cuts_committed": 100},
            proxied=True,
        ),
        Phase(
            "network",
            0.05,
            schedule.network,
            saw={"resets": 1, "drops": 1},
            figures={"resets": 10, "drops": 8},
            proxied=True,
        ),
        Phase("drain", 0.03, schedule.drains, saw={"drains": 4}, figures={"drains": 50}, mix=SLOW),
        Phase(
            "outage",
            0.04,
            schedule.outages,
            saw={"outages": 1},
            figures={"outages": 5},
            proxied=True,
        ),
        Phase(
            "poison",
            0.03,
            schedule.no_faults,
            saw={"quarantined": 1, "exits": 2},
            figures={"quarantined": 10},
            mix={"neighbour": 40, "noop": 20, "poison": 1},
            rate=60.0,
        ),
        Phase(
            "oom",
            0.02,
            schedule.no_faults,
            saw={"quarantined": 1, "exits": 2},
            figures={"quarantined": 5},
            mix={"neighbour": 40, "noop": 20, "hog": 1},
            rate=40.0,
            megabytes=120,
        ),
        Phase(
            "durable",
            0.05,
            schedule.durable,
            saw={
                "kills": 3,
                "freezes": 2,
                "crashes": 1,
                "journeys": 50,
                "slept": 30,
                "signals": 30,
            },
            figures={"kills": 100, "journeys": 200},
            mix={"journey": 12, "trek": 4, "noop": 6, "effect": 2, "nap": 2},
            rate=30.0,
        ),
        Phase(
            "mixed",
            0.0,
            schedule.mixed,
            saw={"kills": 3, "freezes": 2, "crashes": 1, "cuts": 5, "stale": 1, "reaps": 3},
            mix=SLOW,
            proxied=True,
            settings={"dead_after": 3.0},  # it runs beside other tests on a busy machine
        ),
    )
}
"""`mixed` is the short form with all kinds of faults."""
