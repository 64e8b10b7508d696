"""Actions that run in one transaction together with their audit row.

Operators' actions and their audit rows commit together, so that neither exists without the other.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from rota.errors import DatabaseUnavailable
from rota.store import audit, pg_errors
from rota.store.audit import AuditEntry
from rota.store.database import Database, run
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

T = TypeVar("T")


async def run_audited(
    database: Database,
    action: Callable[[PgConnection], Awaitable[T]],
    may_retry: Callable[[BaseException], bool] = pg_errors.is_contended,
    *,
    audit_entry: AuditEntry | None = None,
    was_done: Callable[[T], bool] = lambda answer: True,
) -> T:
    """Run an action in a transaction and retry it, by default only if it was contended.

    For an idempotent action, pass a `may_retry` that also accepts errors after which the outcome is
    unknown. The audit row is written if `was_done` returns True for the action's result.
    """
    timeout = database.settings.outage_timeout
    deadline = time.monotonic() + timeout
    while True:
        try:
            async with database.transaction(timeout) as connection:
                answer = await action(connection)
                if audit_entry is not None and was_done(answer):
                    await run(connection, audit.write_entry(audit_entry), database.schema)
                return answer
        except Exception as error:
            if not may_retry(error):
                raise
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"this could not be done in time: {pg_errors.first_line(error)}; try again later"
                ) from error
        await asyncio.sleep(random.uniform(0.02, 0.2))


async def run_audited_query(
    database: Database,
    query: Query[T],
    audit_entry: AuditEntry | None,
    *,
    was_done: Callable[[T], bool],
    is_idempotent: bool,
) -> T:
    """Run a query that returns one row.

    An idempotent query is also sent again if its answer was lost.
    """
    if audit_entry is None:
        rows = await (database.run_with_retry(query) if is_idempotent else database.run(query))
        return rows[0]

    async def action(connection: PgConnection) -> T:
        rows = await run(connection, query, database.schema)
        return rows[0]

    may_retry = pg_errors.is_transient if is_idempotent else pg_errors.is_contended
    return await run_audited(
        database, action, may_retry, audit_entry=audit_entry, was_done=was_done
    )
