"""Plans of statements on any connection, custom and generic."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from psycopg import sql

from rota.store.query import Query, positional
from support.plans import Scan, scans
from support.stage import Connection


async def explain(on: Connection, schema: str, query: Query[Any]) -> list[Scan]:
    """Return the scans of a statement on this connection, with a custom and with a generic plan."""
    text, names = positional(query.statement, schema)
    values = sql.SQL(", ").join(sql.SQL("{}").format(sql.Literal(query.params[n])) for n in names)
    call = sql.SQL(" ({})").format(values) if names else sql.SQL("")
    found: list[Scan] = []
    for mode in ("force_custom_plan", "force_generic_plan"):
        async with on.transaction(force_rollback=True):
            await on.execute(f"set local plan_cache_mode = {mode}".encode())
            await on.execute(b"prepare guarded as " + text.encode(), prepare=False)
            try:
                cursor = await on.execute(
                    sql.SQL(
                        "explain (analyze, costs off, timing off, format json) execute guarded{}"
                    )
                    .format(call)
                    .as_bytes(on),
                    prepare=False,
                )
                [[raw]] = await cursor.fetchall()
            finally:
                await on.execute("deallocate guarded")
        [explained] = json.loads(raw)
        found += scans(explained["Plan"])
    return found


def read_by(found: list[Scan]) -> Counter[str]:
    """Return the rows read of each table, in both executions."""
    read: Counter[str] = Counter()
    for scan in found:
        read[scan.table] += int(scan.read)
    return read
