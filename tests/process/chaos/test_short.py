"""Short form: all faults at once for a while, and mutants, which must be found.

The long form is `make chaos`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chaos.evidence import Violation
from chaos.mutants import MUTANTS
from chaos.phase_run import PhaseRun
from chaos.phases import PHASES
from chaos.report import table
from chaos.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SEED = "short"
LONG = os.environ.get("ROTA_TEST_LONG") == "1"
SECONDS = 30.0 if LONG else 18.0
DURABLE_SECONDS = 8.0
SOME = ("M1",)
"""One mutant; `make proofs` runs all."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.open()
    yield server
    await server.close()


def _is_time_bound(violation: Violation) -> bool:
    """Whether it is a bound on elapsed time, which only the long form checks."""
    return violation.invariant == "I16" and violation.text.startswith("a transaction ")


@pytest.mark.timeout(240)
async def test_chaos_mixed_faults_lose_no_job_and_repeat_no_effect(server: Server) -> None:
    """Equivalent of `python -m tests.chaos --seconds 30 --faults mixed --seed short`.

    If the intended events did not all occur, the run is repeated: a run proves nothing about events that it
    did not see.
    """
    histories = Path(tempfile.mkdtemp(prefix="rota-chaos-"))  # kept after a failure
    seen: Counter[str] = Counter()
    needs = PHASES["mixed"].needs(False)
    for turn in ("mixed", "mixed again", "mixed once more"):
        stage = PhaseRun(server, PHASES["mixed"], f"{SEED}:{turn}", histories / turn)
        result = await stage.run(SECONDS)
        wrong = [each for each in result.violations if LONG or not _is_time_bound(each)]
        assert not wrong, table([result])
        seen += result.counts
        if all(seen[what] >= least for what, least in needs.items()):
            break
    else:
        pytest.fail(f"{dict(seen)} in three runs, of {needs}")
    shutil.rmtree(histories)


@pytest.mark.timeout(240)
async def test_chaos_durable_functions_survive_all_faults(server: Server) -> None:
    """Equivalent of `python -m tests.chaos --seconds 8 --faults durable --seed short`."""
    histories = Path(tempfile.mkdtemp(prefix="rota-chaos-"))
    stage = PhaseRun(server, PHASES["durable"], f"{SEED}:durable", histories)
    result = await stage.run(DURABLE_SECONDS)
    assert result.passed, table([result])
    shutil.rmtree(histories)


@pytest.mark.parametrize("name", MUTANTS if LONG else SOME)
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
