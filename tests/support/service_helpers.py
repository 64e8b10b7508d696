"""Helpers for service tests: recorded events, audit queries and ways to end a term."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from rota import Rota
from rota.coord.service_runner import ServiceRunner
from rota.model.events import ServiceRan
from rota.store.advisory_locks import LEADER


def record_iterations(app: Rota) -> list[ServiceRan]:
    """Return a list that collects every iteration that ends in this app from now on."""
    heard: list[ServiceRan] = []
    app.subscribe(lambda event: heard.append(event) if isinstance(event, ServiceRan) else None)
    return heard


def record_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that collects the seconds every service waits before it begins an iteration."""
    pauses: list[float] = []
    wait_next = ServiceRunner._wait_next

    async def recorded(self: ServiceRunner, seconds: float, term: Any) -> bool:
        pauses.append(seconds)
        return await wait_next(self, seconds, term)

    monkeypatch.setattr(ServiceRunner, "_wait_next", recorded)
    return pauses


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


async def registered(app: Rota, count: int) -> None:
    """Wait until so many instances are registered, running services or standing by."""
    async with asyncio.timeout(60):
        while len(await run_sql(app, "select from rota.instances")) < count:
            await asyncio.sleep(0.005)


@asynccontextmanager
async def begins_blocked(app: Rota) -> AsyncIterator[None]:
    """Block the statement that begins an iteration. The block starts when the statement waits."""
    dsn = (await app.open()).database.dsn
    blocked = "select from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
    async with await psycopg.AsyncConnection.connect(dsn) as in_the_way:
        # Only a begin inserts one of these rows; the end of an iteration is not blocked.
        answer = await in_the_way.execute(
            "insert into rota.iterations (service, number, term, instance, host, pid)"
            " select name, iteration + n, 0, gen_random_uuid(), '', 0"
            " from rota.services, generate_series(1, 1000) n returning pg_backend_pid()"
        )
        row = await answer.fetchone()
        assert row is not None
        async with asyncio.timeout(60):
            while not await (await in_the_way.execute(blocked, row)).fetchall():
                await asyncio.sleep(0.005)
        yield
        await in_the_way.rollback()


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
