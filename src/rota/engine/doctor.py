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
from rota.engine.charts import Chart
from rota.model.checkup import Checked
from rota.store import failures, views
from rota.store.database import Database

Check = Callable[[Chart], Awaitable[list[Checked]]]

WITHIN = 2.0
"""Seconds that one question may take."""

CHECKS: Sequence[tuple[str, Check]] = (
    ("schema", doctor_schema.schema),
    ("server", doctor_server.server),
    ("durability", doctor_server.durability),
    ("connections", doctor_server.connections),
    ("pooler", doctor_server.pooler),
    ("clock", doctor_server.clock),
    ("snapshots", doctor_server.snapshots),
    ("notifications", doctor_server.notifications),
    ("autovacuum", doctor_server.autovacuum),
    ("wraparound", doctor_server.wraparound),
    ("dead rows", doctor_schema.dead_rows),
    ("indexes", doctor_schema.indexes),
    ("workers", doctor_work.workers),
    ("unclaimable", doctor_work.unclaimable),
    ("paused", doctor_work.paused),
    ("overdue", doctor_work.overdue),
    ("orphans", doctor_work.orphans),
    ("quarantine", doctor_work.quarantine),
)


async def look_over(database: Database, now: Callable[[], datetime]) -> AsyncIterator[Checked]:
    """What each check found. `now`: what time it is on this machine."""

    async def ask(query: Any) -> list[Any]:
        [[_, rows]] = await database.exchange([[views.within(WITHIN), query]])
        return rows

    async with database.connection() as connection:
        pooled = connection.pooled
    chart = Chart(database, ask, pooled, now)
    for name, check in CHECKS:
        try:
            found = await check(chart)
        except Exception as error:
            found = [_unseen(name, error)]
        for each in found:
            yield each


def _unseen(name: str, error: Exception) -> Checked:
    state = failures.sqlstate(error)
    if failures.is_lost(error) or failures.is_unsent(error):
        raise error
    match state:
        case "42501":
            why = f"this role may not look: {failures.first_line(error)}"
        case "57014":
            why = f"the answer did not come within {WITHIN:g} s"
        case "42P01" | "3F000":
            why = "Rota's tables are not there"
        case _:
            why = failures.first_line(error)
    return Checked(name, "unseen", why)
