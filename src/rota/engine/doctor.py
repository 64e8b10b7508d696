"""Looks the server and the schema over, one check after the other.

Each check is a function that asks one question and says what it found: that it is well, with the figure it
was judged by, or what is wrong and what mends it. One that may not look, or does not get an answer in time,
says so, and keeps none of the others from looking.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from rota.engine import doctor_schema, doctor_server, doctor_work
from rota.engine.charts import CheckContext
from rota.model.checkup import CheckResult
from rota.store import failures, views
from rota.store.database import Database

Check = Callable[[CheckContext], Awaitable[list[CheckResult]]]

QUERY_TIMEOUT_SECONDS = 2.0
"""Seconds that one question may take."""

CHECKS: Sequence[tuple[str, Check]] = (
    ("schema", doctor_schema.check_schema),
    ("server", doctor_server.check_server),
    ("durability", doctor_server.check_durability),
    ("connections", doctor_server.check_connections),
    ("pooler", doctor_server.check_pooler),
    ("clock", doctor_server.check_clock),
    ("snapshots", doctor_server.check_snapshots),
    ("notifications", doctor_server.check_notifications),
    ("autovacuum", doctor_server.check_autovacuum),
    ("wraparound", doctor_server.check_wraparound),
    ("dead rows", doctor_schema.check_dead_rows),
    ("indexes", doctor_schema.check_indexes),
    ("workers", doctor_work.check_workers),
    ("unclaimable", doctor_work.check_unclaimable),
    ("paused", doctor_work.check_paused),
    ("overdue", doctor_work.check_overdue),
    ("orphans", doctor_work.check_orphans),
    ("quarantine", doctor_work.check_quarantine),
)


async def run_checks(database: Database, now: Callable[[], datetime]) -> AsyncIterator[CheckResult]:
    """What each check found. `now`: what time it is on this machine."""

    async def fetch(query: Any) -> list[Any]:
        [[_, rows]] = await database.pipeline([[views.set_timeout(QUERY_TIMEOUT_SECONDS), query]])
        return rows

    async with database.connection() as connection:
        pooled = connection.pooled
    context = CheckContext(database, fetch, pooled, now)
    for name, check in CHECKS:
        try:
            found = await check(context)
        except Exception as error:
            found = [_failed_check(name, error)]
        for each in found:
            yield each


def _failed_check(name: str, error: Exception) -> CheckResult:
    state = failures.sqlstate(error)
    if failures.is_connection_lost(error) or failures.was_not_sent(error):
        raise error
    match state:
        case "42501":
            reason = f"this role may not look: {failures.first_line(error)}"
        case "57014":
            reason = f"the answer did not come within {QUERY_TIMEOUT_SECONDS:g} s"
        case "42P01" | "3F000":
            reason = "Rota's tables are not there"
        case _:
            reason = failures.first_line(error)
    return CheckResult(name, "unchecked", reason)
