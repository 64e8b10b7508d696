"""A failing query affects only its own alerts: they are neither raised nor cleared."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rota.model import alert_decision, alert_rules
from rota.store import alerts
from rota.store.query import Query
from support.alert_helpers import ManualEvaluator, Sql, rows

QUARANTINED = """
insert into rota.quarantine (job, priority, attempt, crashes, queue, task) values (7, 0, 1, 3,
       'default', 'work')
"""
DEAD = """
insert into rota.workers (host, pid, version, queues, tasks, capacity, state, last_beat, ended)
values ('h', 1, '', '{default}', '{work}', 1, 'dead', rota.clock(), rota.clock())
"""


def broken() -> Query[Any]:
    """Return a query that the database rejects."""
    return Query("alert/late_schedules", {"late": "no number"}, lambda *row: row)


@pytest.mark.parametrize(
    "which",
    [
        "dead_workers",
        "live_workers",
        "queue_heads",
        "late_schedules",
        "refused_outcomes",
        "server_load",
    ],
)
async def test_alert_round_failed_query_leaves_other_rules_active(
    db: Sql,
    manual_evaluator: ManualEvaluator,
    which: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(alerts, which, lambda *given: broken())
    await db.execute(QUARANTINED.encode())
    with caplog.at_level(logging.WARNING, "rota"):
        for _ in range(3):
            await manual_evaluator.look()
    assert (alert_rules.QUARANTINE, "default", True) in await rows(db)
    told = [each for each in caplog.messages if "cannot be evaluated" in each]
    assert len(told) == (
        2 if which == "server_load" else 1
    )  # once for each kind, not in every round


async def test_alert_round_failed_query_keeps_its_alerts_open(
    db: Sql, manual_evaluator: ManualEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_decision, "CLOSE_AFTER_SECONDS", 0.0)
    await db.execute(DEAD.encode())
    await db.execute(QUARANTINED.encode())
    await manual_evaluator.look()
    dead, jobs = (alert_rules.WORKER_DEAD, "h", True), (alert_rules.QUARANTINE, "default", True)
    assert sorted(await rows(db)) == sorted([dead, jobs])
    await db.execute("delete from rota.workers")
    await db.execute("delete from rota.quarantine")
    # Dead workers are determined by two queries: without one of them their alerts stay as they are.
    monkeypatch.setattr(alerts, "live_workers", lambda *given: broken())
    for _ in range(3):
        await manual_evaluator.look()
    assert sorted(await rows(db)) == sorted([dead, (alert_rules.QUARANTINE, "default", False)])
    monkeypatch.undo()
    monkeypatch.setattr(alert_decision, "CLOSE_AFTER_SECONDS", 0.0)
    for _ in range(3):
        await manual_evaluator.look()
    assert (alert_rules.WORKER_DEAD, "h", False) in await rows(db)
