"""Every statement of a worker and its clients may fail: nothing is lost, doubled or charged to a job.

Each fails at its first use here; `tests/proofs` lets each one fail alone, with every SQLSTATE.
"""

from __future__ import annotations

import pytest

from rota import Rota
from support.fault_scenario import (
    PASSING_CODES,
    Scenario,
    assert_nothing_charged,
    short_pauses,
)
from support.statement_faults import StatementFaults

pytestmark = pytest.mark.usefixtures(short_pauses.__name__)


@pytest.mark.parametrize("code", PASSING_CODES)
async def test_every_statement_failing_at_first_use_loses_nothing(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    scenario = Scenario(rota_app)
    faults = StatementFaults(rota_dsn, monkeypatch)
    await rota_app.migrate()

    faults.fail_first_use(code)
    await scenario.run("first")
    faults.stop()

    await assert_nothing_charged(rota_dsn)
    assert len(faults.failed) > 40, sorted(faults.failed)
