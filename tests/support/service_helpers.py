"""Helpers for service tests: recorded events, audit queries and ways to end a term."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from rota import Rota
from rota.model.events import ServiceRan
from rota.store.advisory_locks import LEADER


def record_iterations(app: Rota) -> list[ServiceRan]:
    """Return a list that collects every iteration that ends in this app from now on."""
    heard: list[ServiceRan] = []
    app.subscribe(lambda event: heard.append(event) if isinstance(event, ServiceRan) else None)
    return heard


async def until(condition: Callable[[], Any], within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


async def run_sql(app: Rota, query: str) -> list[tuple[Any, ...]]:
    """Run a query on a separate connection."""
    dsn = (await app.open()).database.dsn
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        answer = await connection.execute(query.encode())
        has_rows = (answer.statusmessage or "").startswith("SELECT")
        return await answer.fetchall() if has_rows else []


async def outcomes(app: Rota) -> list[str | None]:
    rows = await run_sql(app, "select number, outcome from rota.iterations order by number")
    assert [number for number, _ in rows] == list(range(rows[0][0], rows[0][0] + len(rows)))
    return [outcome for _, outcome in rows]


async def terminate_leader_sessions(app: Rota) -> None:
    """Terminate the sessions that hold the session locks of terms, as an operator might."""
    await run_sql(
        app,
        "select pg_terminate_backend(pid) from pg_locks"
        f" where locktype = 'advisory' and classid::bigint = {LEADER}"
        " and database = (select oid from pg_database where datname = current_database())",
    )


async def elect_other_instance(app: Rota) -> None:
    """Elect another instance in the database, before the present leader notices."""
    await run_sql(
        app, "update rota.leaders set term = term + 1, instance = gen_random_uuid(), since = now()"
    )
