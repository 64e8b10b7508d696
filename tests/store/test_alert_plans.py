"""A round reads little more than the rows it reports, also beside a million jobs.

As in `store.test_plans`: on tables that were never analysed, analysed while empty and then filled, and
analysed full; with custom and with generic plans.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota.model.alert_decision import AlertDecision
from rota.store import alerts, retention, ticks
from rota.store.query import Query
from support.connection_plans import explain, read_by
from support.scale import scale
from support.stage import Stage
from support.stage_fixtures import own_stage

__all__ = ["own_stage"]

MANY = scale(5_000, 1_000_000)
QUEUES = 3
FEW = 100
"""Number of rows that alerts report."""

FILL = {
    "jobs": """
insert into rota.jobs (id, created, task, queue, args)
select n, rota.clock(), 'work', 'q' || n %% 3, '{}' from generate_series(1, 2 * %(rows)s) as n
""",
    "queued": """
insert into rota.queued (seq, job, priority, queue, task)
select n, n, n / 3 %% 2, 'q' || n %% 3, 'work' from generate_series(1, %(rows)s) as n
""",
    "schedules": """
insert into rota.schedules (name, declared, kind, target, input, every, anchor, next, due, failures)
select 's' || n, false, 'task', 'work', '{}', 60, rota.clock(), at, at, n %% 2
  from generate_series(1, %(rows)s) as n, lateral (select rota.clock() + n * interval '1 min' as at) as at
""",
    "alerts": """
insert into rota.alerts (kind, subject, message, host, pid, cleared, deliver_at, closed_by)
select 'queue too old', 's' || n, 'm', 'h', 1, rota.clock(), null, case when n %% 2 = 0 then 'me' end
  from generate_series(1, %(rows)s) as n
""",
    "audit": """
insert into rota.audit (operator, action, subject) select 'me', 'did', 'it' from generate_series(1,
       %(rows)s)
""",
    "rate_limits": """
insert into rota.rate_limits (name, refilled_at, interval_seconds, last_used)
select 'r' || n, rota.clock(), 1, rota.clock() from generate_series(1, %(rows)s) as n
""",
    "locks": """
insert into rota.locks (name, slot, token, acquired, expires)
select 'l' || n, 0, n, rota.clock(), rota.clock() from generate_series(1, %(rows)s) as n
""",
    "refused_outcomes": """
insert into rota.refused_outcomes (at, host, pid, jobs)
select rota.clock() - interval '1 h', 'h', 1, 1 from generate_series(1, %(rows)s)
""",
    "quarantine": """
insert into rota.quarantine (job, priority, attempt, crashes, queue, task)
select n, 0, 1, 3, 'q', 'work' from generate_series(%(rows)s + 1, 2 * %(rows)s) as n
""",
}

# A few rows that alerts report.
LAY = (
    """
insert into rota.alerts (kind, subject, message, host, pid)
select 'schedule fails', 's' || n, 'm', 'h', 1 from generate_series(1, 50) as n
""",
    """
update rota.schedules set due = rota.clock() - interval '1 h', failures = 5
 where name = any(array(select 's' || n from generate_series(1, 50) as n))
""",
    "insert into rota.refused_outcomes (host, pid, jobs) select 'h', 1, 1 from generate_series(1, 50)",
)


@pytest.fixture(params=["never analysed", "analysed empty", "analysed full"])
async def filled(own_stage: Stage, request: pytest.FixtureRequest) -> Stage:
    stage = own_stage
    stage.watch.deadline = None  # type: ignore[attr-defined]
    await stage.sql("set statement_timeout = 0")
    for table in FILL:
        await stage.sql(f"alter table rota.{table} set (autovacuum_enabled = off)")
    if request.param == "analysed empty":
        await stage.sql("analyze")
    for statement in FILL.values():
        await stage.watch.execute(statement.encode(), {"rows": MANY})
    for statement in LAY:
        await stage.sql(statement)
    if request.param == "analysed full":
        await stage.sql("analyze")
    return stage


async def test_alert_round_queries_read_few_rows_of_large_tables(filled: Stage) -> None:
    plain = await filled.connect()
    looking: dict[str, tuple[Query[Any], int]] = {
        "turn": (alerts.begin_round(0.0), 10),
        "open": (alerts.list_open(), FEW),
        "heads": (alerts.queue_heads(), 30 * QUEUES),
        "dead": (alerts.dead_workers(), FEW),
        "alive": (alerts.live_workers(), FEW),
        "late": (alerts.late_schedules(30.0), FEW),
        "failing": (alerts.failing_schedules(3), 4 * FEW),
        "quarantined": (alerts.quarantined_jobs(), 1000),
        "refused": (alerts.refused_outcomes(300.0), FEW),
        "judge": (alerts.write_round(1, AlertDecision(cleared=[1], closed=[2]), {}, "h", 1), FEW),
        "take": (alerts.claim_deliveries(10, 30.0), FEW),
        "settle": (alerts.clear_resolved(), 4 * FEW),
        "tidy": (retention.clean(3600.0, 3600.0, 3600.0, retention.FROM_START, 100), 500),
    }
    wrong = {}
    for name, (query, most) in looking.items():
        async with plain.transaction(force_rollback=True):
            before: Query[Any] = ticks.set_short_timeouts()
            if name == "tidy":
                before = retention.try_lock(filled.schema)
            await filled.run(before, plain)
            found = await explain(plain, filled.schema, query)
        for table, read in read_by(found).items():
            # The statement was run twice.
            if read > 2 * most and table != "workers":
                wrong[name, table] = read
    assert wrong == {}
