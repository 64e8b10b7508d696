"""Durable functions under all faults, and mutants, which the checker must find."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chaos.mutants import MUTANTS
from chaos.phase_run import PhaseRun
from chaos.phases import PHASES
from chaos.report import table
from chaos.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
SEED = "short"
DURABLE_SECONDS = 8.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.open()
    yield server
    await server.close()


@pytest.mark.timeout(240)
async def test_chaos_durable_functions_survive_all_faults(server: Server) -> None:
    """Equivalent of `python -m tests.chaos --seconds 8 --faults durable --seed short`."""
    histories = Path(tempfile.mkdtemp(prefix="rota-chaos-"))
    stage = PhaseRun(server, PHASES["durable"], f"{SEED}:durable", histories)
    result = await stage.run(DURABLE_SECONDS)
    assert result.passed, table([result])
    shutil.rmtree(histories)


@pytest.mark.parametrize("name", MUTANTS)
async def test_chaos_mutant_is_found_by_the_checker(
    name: str, server: Server, tmp_path: Path
) -> None:
    """A mutant shows only if a fault meets it.

    That may not happen in a few seconds, so there are three runs.
    """
    mutant = MUTANTS[name]
    said = []
    for turn in range(3):
        stage = PhaseRun(
            server,
            mutant.phase,
            f"{SEED}:{turn}",
            tmp_path / f"{name}-{turn}",
            mutant=name,
            settings=mutant.settings,
        )
        result = await stage.run(mutant.seconds)
        if {violation.invariant for violation in result.violations} & mutant.found_by:
            return
        said.append(table([result]))
    pytest.fail(f"{name}: {mutant.what}: {said}")
