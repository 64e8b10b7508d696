"""Release of a lock by force. A refusal names the open transaction that asserts the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.errors import Busy
from rota.model.text import in_one_unit
from rota.store import audit, pg_errors
from rota.store.audit import Blocker, ReleasedLock
from rota.store.database import Database, run

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

BLOCKER_POLL_SECONDS = 0.1


def lock_title(name: str, permit: int) -> str:
    return f"permit {permit} of {name!r}" if permit else f"lock {name!r}"


async def release_by_force(
    database: Database, name: str, permit: int, token: int | None, by: str
) -> ReleasedLock | None:
    """Release a lock and write the audit row. Return its former holder, or None if it was not held.

    Raise Busy, with the sessions that block the release, if a transaction asserts the lock.
    """
    connection = await database.connect()
    blockers: list[Blocker] = []
    try:
        # One transaction, so that a pooler runs both statements in the same server process.
        async with connection.transaction():
            [pid] = await run(connection, audit.backend_pid(), database.schema)
            polling = asyncio.create_task(_poll_blockers(database, pid, blockers))
            try:
                query = audit.release_lock(name, permit, by, token)
                released = await run(connection, query, database.schema)
            finally:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
    except Exception as error:
        if not pg_errors.is_contended(error):
            raise
        raise Busy(_blocked(lock_title(name, permit), blockers)) from error
    finally:
        await connection.close()
    return released[0] if released else None


async def _poll_blockers(database: Database, pid: int, found: list[Blocker]) -> None:
    connection: PgConnection = await database.connect()
    try:
        while True:
            await asyncio.sleep(BLOCKER_POLL_SECONDS)
            if blockers := await run(connection, audit.blockers(pid), database.schema):
                found[:] = blockers
    finally:
        await connection.close()


def _blocked(title: str, blockers: Sequence[Blocker]) -> str:
    if not blockers:
        return f"{title} was busy for two seconds and was not released; try again"
    sessions = "; ".join(_describe_session(each) for each in blockers)
    commands = " and ".join(f"`select pg_terminate_backend({each.pid})`" for each in blockers)
    return (
        f"{title} was not released: an open transaction asserts it: {sessions}. "
        f"End the transaction in its program, or roll it back with {commands}; then try again"
    )


def _describe_session(blocker: Blocker) -> str:
    words = [f"server process {blocker.pid}"]
    origin = [
        blocker.application,
        blocker.user and f"user {blocker.user}",
        blocker.address and f"from {blocker.address}",
    ]
    if any(origin):
        words.append(f"({', '.join(each for each in origin if each)})")
    if blocker.open is not None:
        words.append(f"has been in the transaction for {in_one_unit(blocker.open)}")
    if blocker.state is not None:
        words.append(f"and is {blocker.state}")
    return " ".join(words)
