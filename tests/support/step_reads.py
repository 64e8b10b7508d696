"""Rows that a statement on steps and signals reads, by the server's counters."""

from __future__ import annotations

from typing import Any

from rota.store.query import Query
from support.stage import Connection, Stage

LARGE = (
    *("jobs", "queued", "outcomes", "sleeping", "steps", "signals", "progress", "logs"),
    *("checkpoints", "runs", "waiting"),
)

READ = """
select relname, seq_tup_read, coalesce(idx_tup_fetch, 0)
  from pg_stat_xact_user_tables
 where schemaname = 'rota' and relname = any(%s)
"""


async def read_by(stage: Stage, query: Query[Any], on: Connection) -> dict[str, int]:
    """Return the rows read of each table, by scans and by indexes. Changes are rolled back."""
    async with on.transaction(force_rollback=True):
        before = {table: a + b for table, a, b in await stage.sql(READ, list(LARGE), on=on)}
        await stage.run(query, on)
        after = {table: a + b for table, a, b in await stage.sql(READ, list(LARGE), on=on)}
    return {table: after[table] - before[table] for table in after}
