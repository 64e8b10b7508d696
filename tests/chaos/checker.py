"""All invariants together."""

from __future__ import annotations

from . import graphs, liveness, safety
from .evidence import Evidence, Violation

CHECKS = (*safety.CHECKS, *graphs.CHECKS, *liveness.CHECKS)


def check(evidence: Evidence) -> list[Violation]:
    return [violation for each in CHECKS for violation in each(evidence)]
