"""Known bugs of the market monitor, which the checks must find."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from support.example_programs import Programs
from support.market import (
    SECONDS,
    faults,
    open_market,
    repeated_requests,
)

MUTANTS = {
    "calls are not shared": r"was asked for \d+ times",
    "every report is bought": r"was paid for \d+ times",
    "nobody waits for his turn": r"\d+ requests came within a second",
    "everything is new": r"was (alerted|found out|paged) \d+ times",
}
"""Known bugs, and the pattern of the fault that each must cause."""

FEW = 8
"""Requests a second: low enough to be exceeded soon."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]
Make = Callable[..., Programs]


@pytest.mark.parametrize("mutants", [[each] for each in MUTANTS])
def test_market_known_bugs_are_found(programs: Make, mutants: list[str]) -> None:
    """The short form has all bugs at once."""
    market = open_market(programs(MUTANTS=", ".join(mutants)), "market_mutants:app", FEW)
    market.start(2)

    def seen() -> bool:
        record = market.record()
        said = "\n".join([*faults(record, FEW), *repeated_requests(record)])
        return all(re.search(MUTANTS[each], said) for each in mutants)

    market.programs.until(seen)
