"""Six processes contend for one lock while some of them are stopped for longer than its TTL.

The tokens of their writes never fall, no writes of two processes overlap, and each loss is reported. `make
proofs` runs the long form: five minutes and every mutant.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.testing.server import DatabaseServer
from support.lock_contest import contest
from support.lock_mutants import MUTANTS

pytestmark = pytest.mark.slow

LONG = os.environ.get("ROTA_TEST_LONG") == "1"
SECONDS = 300.0 if LONG else 6.0
TTL = 1.0 if LONG else 0.6
SOME = ("M6", "M7")
ELSEWHERE = ("M12",)
"""Mutants that the tests with a stepped clock find."""


@pytest.mark.timeout(120 + SECONDS)
async def test_lock_six_contenders_write_in_turn_and_report_each_loss(
    direct_dsn: str, tmp_path: Path
) -> None:
    found = await contest(direct_dsn, tmp_path, seconds=SECONDS, ttl=TTL, seed="six")
    counts = found.counts
    print(dict(counts))

    assert found.said() == []
    # The faults did happen.
    least = SECONDS / 6
    assert counts["acquisitions"] >= 5 * least
    assert min(counts["effects"], counts["losses told"], counts["taken over"]) >= least
    assert counts["refused"] >= least
    assert counts["taken away"] >= least // 2


@pytest.mark.parametrize(
    "name", [each for each in MUTANTS if each not in ELSEWHERE] if LONG else SOME
)
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
                seconds=6.0 if LONG else 2.5,
                ttl=TTL,
                seed=f"{name}:{turn}",
                mutant=name,
            )
        if found.violations() & mutant.found_by:
            return
        said.append((dict(found.counts), found.said()[:5]))
    pytest.fail(f"{name}: {mutant.what}: {said}")
