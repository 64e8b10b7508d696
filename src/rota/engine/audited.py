"""Actions that run in one transaction together with their audit row.

Operators' actions and their audit rows commit together, so that neither exists without the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from rota.store import audit, pg_errors
from rota.store.audit import AuditEntry
from rota.store.database import Database, run
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

T = TypeVar("T")


def _had_no_effect(error: BaseException) -> bool:
    return pg_errors.is_contended(error) or pg_errors.is_safe_to_repeat(error)


async def run_audited(
    database: Database,
    action: Callable[[PgConnection], Awaitable[T]],
    may_retry: Callable[[BaseException], bool] = _had_no_effect,
    *,
    audit_entry: AuditEntry | None = None,
    was_done: Callable[[T], bool] = lambda answer: True,
) -> T:
    """Run an action in a transaction and retry it, by default only if it had no effect.

    For an idempotent action, pass a `may_retry` that also accepts errors after which the outcome is
    unknown. The audit row is written if `was_done` returns True for the action's result.
    """

    async def transact() -> T:
        async with database.transaction() as connection:
            answer = await action(connection)
            if audit_entry is not None and was_done(answer):
                await run(connection, audit.write_entry(audit_entry), database.schema)
            return answer

    return await database.retry(transact, database.settings.outage_timeout, may_retry)


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

    may_retry = pg_errors.may_pass if is_idempotent else _had_no_effect
    return await run_audited(
        database, action, may_retry, audit_entry=audit_entry, was_done=was_done
    )
