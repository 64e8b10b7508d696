"""Plans of statements on the engine's connection, and tables full of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from rota.store.query import Query, positional
from support.stage import Stage

BATCH = 100

TABLES = (
    *("jobs", "queued", "sleeping", "claims", "outcomes", "attempts", "keys", "waiters", "cancels"),
    *("runs", "waiting", "pending_releases"),
)


# Only the rows of `queued` have jobs. For the other tables just the number of rows matters.
FILL = (
    "insert into rota.jobs (id, priority, task, queue, args)"
    " select nextval('rota.ids'), 0, 'work', 'default', '{}' from generate_series(1, %(rows)s)",
    "insert into rota.queued (seq, job, priority, queue, task)"
    " select id, id, priority, queue, task from rota.jobs",
    "insert into rota.sleeping (job, wake_at, priority, queue, task)"
    " select -id, rota.clock() + id * interval '1 min', priority, queue, task from rota.jobs",
    "insert into rota.outcomes (job, state, attempt) select -id, 'succeeded', 1 from rota.jobs",
    "insert into rota.attempts (job, state, attempt)"
    " select -id, 'failed', 1 from rota.jobs limit 100000",
    "insert into rota.waiters (job, listener) select -id, 'me' from rota.jobs limit 100000",
    "insert into rota.claims (worker, nonce, jobs, attempts, crashes, seqs)"
    " select 0, gen_random_uuid(), array[-id], array[1], array[0], array[-id]"
    "   from rota.jobs order by id limit least(%(rows)s, 1000)",
)


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows read by one node of a plan, in all its loops."""

    kind: str
    table: str
    read: float
    rounds: int


def scans(node: dict[str, Any]) -> Iterator[Scan]:
    if "Relation Name" in node and "Scan" in node["Node Type"]:
        rounds = node["Actual Loops"]
        removed = node.get("Rows Removed by Filter", 0) + node.get(
            "Rows Removed by Index Recheck", 0
        )
        read = (node["Actual Rows"] + removed) * rounds
        yield Scan(node["Node Type"], node["Relation Name"], read, rounds)
    for child in node.get("Plans", ()):
        yield from scans(child)


async def explain(stage: Stage, query: Query[Any]) -> list[Scan]:
    """Return the scans of a statement on the engine's connection. Changes are rolled back."""
    text, names = positional(query.statement, stage.schema)
    values = sql.SQL(", ").join(
        # Literals of unknown type, as the driver sends them.
        sql.SQL("{}").format(sql.Literal(query.params[name]))
        for name in names
    )
    async with stage.engine.transaction(force_rollback=True):
        await stage.engine.execute(b"prepare guarded as " + text.encode(), prepare=False)
        try:
            cursor = await stage.engine.execute(
                sql.SQL(
                    "explain (analyze, costs off, timing off, format json) execute guarded ({})"
                )
                .format(values)
                .as_bytes(stage.engine),
                prepare=False,
            )
            [[raw]] = await cursor.fetchall()
        finally:
            await stage.engine.execute("deallocate guarded")
    [explained] = json.loads(raw)
    return list(scans(explained["Plan"]))


async def fill(stage: Stage, rows: int) -> None:
    await stage.sql("set statement_timeout = 0")
    for statement in FILL:
        await stage.watch.execute(statement.encode(), {"rows": rows})
