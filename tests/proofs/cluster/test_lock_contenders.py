"""Mutants of the lock code, which a contest must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.testing.server import DatabaseServer
from support.lock_contest import contest
from support.lock_mutants import MUTANTS

pytestmark = pytest.mark.slow
TTL = 1.0
ELSEWHERE = ("M12",)
"""Mutants that the tests with a stepped clock find."""


@pytest.mark.parametrize("name", [each for each in MUTANTS if each not in ELSEWHERE])
async def test_lock_mutant_is_found_by_the_contest(
    name: str, rota_server: DatabaseServer, tmp_path: Path
) -> None:
    """A mutant fails only if a fault meets it.

    That may not happen in a few seconds, so the contest is repeated.
    """
    mutant, said = MUTANTS[name], []
    for turn in range(6):
        with rota_server.database() as dsn:
            found = await contest(
                *(dsn, tmp_path / str(turn)),
                seconds=6.0,
                ttl=TTL,
                seed=f"{name}:{turn}",
                mutant=name,
            )
        if found.violations() & mutant.found_by:
            return
        said.append((dict(found.counts), found.said()[:5]))
    pytest.fail(f"{name}: {mutant.what}: {said}")
