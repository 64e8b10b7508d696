"""Helpers for leader tests. They query the database directly, past any proxy or pooler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from rota.coord.candidate import Candidate
from rota.coord.leader import Leader, Term
from rota.store import advisory_locks
from support.owned_clock import ClockedRota

OWNED_LEASE = 3600.0
"""Lease of leaders with an owned clock. The server ends a session after as many real seconds of silence."""

SEATS = f"""
select pid from pg_locks
 where locktype = 'advisory' and classid::bigint = {advisory_locks.LEADER} and granted
   and database = (select oid from pg_database where datname = current_database())
"""


async def run_sql(dsn: str, text: str, *params: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(text.encode(), params)
        return await cursor.fetchall() if cursor.description is not None else []


async def session_lock_pids(dsn: str) -> list[int]:
    """Return the backend pids that hold a session lock, once for each lock held."""
    return [pid for (pid,) in await run_sql(dsn, SEATS)]


async def wait_until_unlocked(dsn: str, within: float = 60) -> None:
    """Wait until no session holds a session lock.

    The elector releases it in the turn that finds the term ended.
    """
    async with asyncio.timeout(within):
        while await session_lock_pids(dsn):
            await asyncio.sleep(0.01)


async def terminate_leader_sessions(dsn: str) -> None:
    """Terminate the sessions that hold a session lock."""
    await run_sql(dsn, f"select pg_terminate_backend(pid) from ({SEATS}) as seats")


async def until(true: Callable[[], Any], within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.005)


async def elected(leader: Leader, within: float = 60) -> Term:
    """Wait until this candidate is elected and return its term."""
    async with asyncio.timeout(within):
        return await leader.elected()


def candidate_of(leader: Leader) -> Candidate:
    assert leader._candidacy is not None
    return leader._candidacy.candidate


async def seek_election(app: ClockedRota, leader: Leader) -> None:
    """Advance the clock until this candidate has sought election at least once more."""
    candidate = candidate_of(leader)

    def has_sought(since: float) -> Callable[[], bool]:
        return lambda: candidate.due_at > since

    for _ in range(2):  # the second attempt begins after the first was answered
        await app.lease_clock.advance_until(has_sought(candidate.due_at), 0.5)
