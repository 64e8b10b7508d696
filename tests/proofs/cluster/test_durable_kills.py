"""Mutants of durable steps, which kills at every await must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.durable_kills import (
    KillTrial,
)
from support.programs.durable_app import MUTANTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_durable_steps_mutant_is_detected(rota_dsn: str, tmp_path: Path, mutant: str) -> None:
    trial = KillTrial(rota_dsn, tmp_path, "ten", 2, mutant)
    left = await trial.run({"own": range(1, 2**40, 3)})
    assert await trial.faults(left), mutant
