"""All invariants."""

from __future__ import annotations

from . import durability, graphs, liveness, safety
from .evidence import Evidence, Violation

CHECKS = (*safety.CHECKS, *graphs.CHECKS, *liveness.CHECKS, *durability.CHECKS)


def check(evidence: Evidence) -> list[Violation]:
    return [violation for each in CHECKS for violation in each(evidence)]
