"""Short form: all faults at once for a while, and mutants, which must be found.

The long form is `make chaos`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chaos.evidence import Violation
from chaos.phase_run import PhaseRun
from chaos.phases import PHASES
from chaos.report import table
from chaos.server import Server
from support.scale import scale

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SEED = "short"
SECONDS = scale(18.0, 30.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.open()
    yield server
    await server.close()


def _is_time_bound(violation: Violation) -> bool:
    """True for a bound on elapsed time, which only the long form checks: a busy machine delays transactions
    and heartbeats.
    """
    if violation.invariant == "I18":
        return True
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
        wrong = [
            each for each in result.violations if scale(False, True) or not _is_time_bound(each)
        ]
        assert not wrong, table([result])
        seen += result.counts
        if all(seen[what] >= least for what, least in needs.items()):
            break
    else:
        pytest.fail(f"{dict(seen)} in three runs, of {needs}")
    shutil.rmtree(histories)
