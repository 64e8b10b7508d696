"""Mutants of the election, which the checks of all acts must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.leader_candidates import LEASE, find_errors, run_candidates
from support.programs.leader_app import MUTANTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("ways", ["dd", "pp"])
async def test_leaders_mutant_is_found(tmp_path: Path, ways: str, mutant: str) -> None:
    """A process that trusts its term for too long acts after it wakes up cut off from the server."""
    async with run_candidates(tmp_path, ways, lease=LEASE, mutant=mutant) as there:
        await there.disrupt("stranded")
        wrong = await find_errors(there)
    assert any("still acted" in each for each in wrong), wrong
