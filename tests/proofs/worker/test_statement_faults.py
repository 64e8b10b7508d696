"""Every statement of a worker and its clients fails three times, with every SQLSTATE that may pass."""

from __future__ import annotations

import pytest

from rota import Rota
from support.fault_scenario import (
    MORE_PASSING_CODES,
    PASSING_CODES,
    Scenario,
    assert_nothing_charged,
    short_pauses,
)
from support.statement_faults import StatementFaults

pytestmark = [pytest.mark.usefixtures(short_pauses.__name__), pytest.mark.timeout(1800)]


@pytest.mark.parametrize("code", [*PASSING_CODES, *MORE_PASSING_CODES])
async def test_each_statement_failing_three_times_loses_nothing(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    scenario = Scenario(rota_app)
    faults = StatementFaults(rota_dsn, monkeypatch)
    await rota_app.migrate()
    await scenario.run("without faults")

    statements = sorted(faults.seen)
    for statement in statements:
        faults.fail(statement, code, times=3)
        await scenario.run(statement)
        faults.stop()
    await assert_nothing_charged(rota_dsn)

    failed = {statement for statement, _ in faults.failed}
    print(f"{code}: {faults.failed.total()} failures of {len(failed)} statements")
    # Rare ones, such as the first heartbeat of a worker, are used in every round.
    assert len(failed) > 0.9 * len(statements), sorted(set(statements) - failed)
