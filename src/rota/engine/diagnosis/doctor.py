"""Checks of the server and the schema, run one after the other.

Each check is a function that sends one query or a few and returns results. A result is ok, with the
figure it was judged by, or names the problem and its fix. A check without permission, or without an
answer in time, is reported as unchecked, and the remaining checks still run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from rota.engine.diagnosis import doctor_checks
from rota.engine.diagnosis.doctor_checks import CheckContext
from rota.errors import DatabaseUnavailable
from rota.model.check_result import CheckResult
from rota.store import pg_errors
from rota.store.database import Database
from rota.store.read import runs

Check = Callable[[CheckContext], Awaitable[list[CheckResult]]]

QUERY_TIMEOUT_SECONDS = 2.0
"""Seconds that one query may take."""

CHECKS: Sequence[tuple[str, Check]] = (
    ("schema", doctor_checks.check_schema),
    ("server", doctor_checks.check_server),
    ("durability", doctor_checks.check_durability),
    ("connections", doctor_checks.check_connections),
    ("pooler", doctor_checks.check_pooler),
    ("clock", doctor_checks.check_clock),
    ("snapshots", doctor_checks.check_snapshots),
    ("notifications", doctor_checks.check_notifications),
    ("autovacuum", doctor_checks.check_autovacuum),
    ("wraparound", doctor_checks.check_wraparound),
    ("dead rows", doctor_checks.check_dead_rows),
    ("indexes", doctor_checks.check_indexes),
    ("workers", doctor_checks.check_workers),
    ("unclaimable", doctor_checks.check_unclaimable),
    ("paused", doctor_checks.check_paused),
    ("overdue", doctor_checks.check_overdue),
    ("orphans", doctor_checks.check_orphans),
    ("quarantine", doctor_checks.check_quarantine),
)


async def run_checks(database: Database, now: Callable[[], datetime]) -> AsyncIterator[CheckResult]:
    """Yield the results of each check. `now` returns the time of this machine."""

    async def fetch(query: Any) -> list[Any]:
        [[_, rows]] = await database.pipeline([[runs.set_timeout(QUERY_TIMEOUT_SECONDS), query]])
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
    state = pg_errors.sqlstate(error)
    is_lost = isinstance(error, DatabaseUnavailable) and error.may_be_done
    if is_lost or pg_errors.was_not_sent(error):
        raise error
    match state:
        case "42501":
            reason = f"this role lacks a privilege: {pg_errors.first_line(error)}"
        case "57014":
            reason = f"the answer did not come within {QUERY_TIMEOUT_SECONDS:g} s"
        case "42P01" | "3F000":
            reason = "Rota's tables do not exist"
        case _:
            reason = pg_errors.first_line(error)
    return CheckResult(name, "unchecked", reason)
