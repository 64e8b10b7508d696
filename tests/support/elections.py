"""Candidates of an election that run its statements directly, one step at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg

from rota.model.settings import Settings
from rota.store import advisory_locks, leaders, query
from rota.store.database import Database, run
from rota.store.leaders import ElectionResult
from rota.store.query import Query
from support.stage import Connection

NAME = "housekeeping"
LEASE = 10.0


class Candidate:
    """One instance and its session."""

    def __init__(self, connection: Connection, schema: str, name: str = NAME) -> None:
        self.connection = connection
        self.instance: UUID = uuid4()
        self.name = name
        self._schema = schema
        self.seat = leaders.session_lock_key(name, schema)

    @property
    def who(self) -> dict[str, Any]:
        return {"instance": self.instance, "host": "host", "pid": 1, "label": ""}

    async def ask(self, query: Query[Any]) -> list[Any]:
        return await run(self.connection, query, self._schema)

    async def sits(self) -> bool:
        return await self.ask(leaders.lock_session([self.seat])) == [self.seat]

    async def rises(self) -> None:
        await self.ask(leaders.unlock_session([self.seat]))

    async def elect(self, lease: float | None = None) -> ElectionResult | None:
        found = await self.ask(leaders.elect(self.name, self.seat, self.who, lease))
        return found[0] if found else None

    async def wins(self, lease: float | None = None) -> int:
        """Return the won term; without a lease, acquire the session lock first."""
        assert lease is not None or await self.sits()
        won = await self.elect(lease)
        assert won is not None
        return won.term

    async def loses(self, lease: float | None = None) -> bool:
        """True if the election is refused, without waiting."""
        return await self.elect(lease) is None

    async def stands(self, term: int) -> bool | None:
        [answer] = await self.ask(leaders.probe(self.instance, [self.name], [self.seat], [term]))
        return bool(answer.is_current)

    async def renews(self, term: int) -> bool | None:
        [answer] = await self.ask(leaders.renew(self.instance, [self.name], [term], [LEASE]))
        stands: bool | None = answer.is_current
        return stands

    async def resigns(self, term: int) -> None:
        await self.ask(leaders.resign(self.instance, self.name, term))

    async def sees_it_vacant(self) -> bool:
        return await self.ask(leaders.vacant_names([self.name], [self.seat])) == [self.name]

    async def sql(self, text: str, *params: Any) -> list[Any]:
        cursor = await self.connection.execute(text.encode(), params)
        return await cursor.fetchall() if cursor.description is not None else []


class Election:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._database = Database(dsn, Settings())
        self._opened: list[Connection] = []

    async def voter(self, name: str = NAME) -> Candidate:
        connection = await self._database.connect()
        self._opened.append(connection)
        return Candidate(connection, self._database.schema, name)

    async def row(self) -> tuple[Any, ...]:
        """Return the term, its leader, and its expiry."""
        asked = "select term, instance, expires from rota.leaders where name = %s"
        [row] = await self.sql(asked, NAME)
        found: tuple[Any, ...] = row
        return found

    async def run_out(self) -> None:
        await self.sql("update rota.leaders set expires = rota.clock() - interval '1 ms'")

    async def sql(self, text: str, *params: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            cursor = await connection.execute(text.encode(), params)
            return await cursor.fetchall() if cursor.description is not None else []

    async def clear(self) -> None:
        """Remove the leader, and wait until no session lock is held."""
        await self.sql("delete from rota.leaders")
        while await self.sql(
            "select from pg_locks where locktype = 'advisory' and database ="
            " (select oid from pg_database where datname = current_database())"
        ):
            await asyncio.sleep(0.005)  # until the server has noticed the closed session

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()
        await self._database.close()


@asynccontextmanager
async def open_election(dsn: str) -> AsyncIterator[Election]:
    polls = Election(dsn)
    try:
        yield polls
    finally:
        await polls.close()


@contextmanager
def mutate_statement(statement: str, right: str, wrong: str) -> Iterator[None]:
    """Run the block with a mistake in one statement."""
    load = query.load

    def changed(name: str, schema: str) -> str:
        text: str = load(name, schema)
        if name == statement:
            assert right in text, f"{statement} has changed: the mutant must be updated"
            text = text.replace(right, wrong)
        return text

    caches = (query.encoded, query.positional)
    try:
        query.load = changed  # type: ignore[assignment]
        for cache in caches:
            cache.cache_clear()
        changed(statement, "rota")
        yield
    finally:
        query.load = load
        for cache in caches:
            cache.cache_clear()


LEADER = advisory_locks.LEADER


async def replace_session_lock(polls: Election, lock: str) -> tuple[bool | None, bool]:
    """Replace the session lock of an elected candidate by another lock.

    Return if the candidate's own probe, and another candidate's check, take it for the session lock.
    """
    voter, other = await polls.voter(), await polls.voter()
    term = await voter.wins()
    assert await voter.stands(term)
    assert not await other.sees_it_vacant()
    await voter.rises()
    await voter.sql(f"select {lock}")
    return await voter.stands(term), not await other.sees_it_vacant()


BIGINT = (
    f"({LEADER}::bigint << 32) | ({leaders.session_lock_key(NAME, 'rota')}::bigint & 4294967295)"
)


SEAT = leaders.session_lock_key(NAME, "rota")
