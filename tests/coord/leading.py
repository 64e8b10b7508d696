"""What tests of leaders look at, past whatever is in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from rota.coord.leader import Leader, Term
from rota.store import advisory_locks

SEATS = f"""
select pid from pg_locks
 where locktype = 'advisory' and classid::bigint = {advisory_locks.LEADER} and granted
   and database = (select oid from pg_database where datname = current_database())
"""


async def ask(dsn: str, text: str, *params: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(text.encode(), params)
        return await cursor.fetchall() if cursor.description else []


async def seats(dsn: str) -> list[int]:
    """The sessions that have one, once for each that they have."""
    return [pid for (pid,) in await ask(dsn, SEATS)]


async def vacated(dsn: str, within: float = 60) -> None:
    """Wait until no session has one: it is given up in the turn that found the term to be over."""
    async with asyncio.timeout(within):
        while await seats(dsn):
            await asyncio.sleep(0.01)


async def unseat(dsn: str) -> None:
    """End the sessions that have a seat."""
    await ask(dsn, f"select pg_terminate_backend(pid) from ({SEATS}) as seats")


async def until(true: Callable[[], Any], within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.005)


async def elected(leader: Leader, within: float = 60) -> Term:
    """Its term, when it has been elected; it stands."""
    async with asyncio.timeout(within):
        return await leader.elected()
