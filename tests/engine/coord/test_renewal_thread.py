"""The renewal thread keeps locks held while the program is busy."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.coord import renewal_thread
from rota.errors import LockLost
from rota.model.events import Event, LockForfeited
from rota.store.database import pipeline
from support.lock_faults import RENEWALS, wait_for_renewals
from support.owned_clock import ClockedRota

TTL = 30.0
Db = AsyncConnection[tuple[Any, ...]]


async def renew_times(app: ClockedRota, db: Db, times: int, *names: str) -> None:
    """Advance the clock until each lock was renewed `times` more, one renewal after the other."""
    [(renewals,)] = await (await db.execute(RENEWALS, (list(names),))).fetchall()
    for renewal in range(times):
        app.lease_clock.advance(TTL / 3)
        await wait_for_renewals(db, renewals + renewal + 1, *names)


# Conditions that cost no lock


async def test_renewal_blocked_event_loop_keeps_the_lock(
    clocked_app: ClockedRota, rota_dsn: str, direct_dsn: str
) -> None:
    async with Rota(rota_dsn) as other:
        with psycopg.connect(direct_dsn, autocommit=True) as blocking:
            async with clocked_app.lock("invoices", ttl=TTL) as lock:
                for renewal in range(1, 5):
                    clocked_app.lease_clock.advance(TTL / 3)
                    while blocking.execute(RENEWALS, (["invoices"],)).fetchone() != (renewal,):
                        time.sleep(0.01)  # noqa: ASYNC251 - the test is about a blocked loop
                assert lock.held
                assert await other.try_lock("invoices") is None


async def test_renewal_exhausted_pool_keeps_the_lock(rota_dsn: str, db: Db) -> None:
    async with ClockedRota(rota_dsn, connections=1) as app:
        client = await app.open()
        async with app.lock("invoices", ttl=TTL) as lock:
            async with client.database.connection():
                await renew_times(app, db, 4, "invoices")
                assert lock.held


async def test_renewal_locked_row_loses_only_that_lock(
    clocked_app: ClockedRota, direct_dsn: str, db: Db
) -> None:
    """The open transaction keeps one lock row locked; the other locks are renewed as before."""
    names = [f"lock {number}" for number in range(4)]
    async with AsyncExitStack() as stack:
        others = [
            await stack.enter_async_context(clocked_app.lock(name, ttl=TTL)) for name in names
        ]
        one = await clocked_app.lock("invoices", ttl=TTL).acquire()
        async with db.transaction(force_rollback=True):
            await db.execute("select rota.release_lock('invoices', 0, 'me')")
            await renew_times(clocked_app, db, 3, *names)
            await asyncio.wait_for(one.lost.wait(), 60)
            await renew_times(clocked_app, db, 3, *names)
            assert all(each.held for each in others)
        with pytest.raises(LockLost, match="expired before it could be renewed"):
            await one.release()


# Conditions that cost a lock


async def test_lock_expired_while_gil_is_held_reports_not_held(rota_app: Rota) -> None:
    """As in a stopped process, no other thread runs meanwhile, and `held` needs none."""
    sleep = ctypes.PyDLL(None).usleep  # a PyDLL call keeps the GIL
    lock = await rota_app.lock("invoices", ttl=0.3).acquire()
    assert lock.held
    sleep(int(2 * 0.3 * 1e6))
    assert not lock.held
    with pytest.raises(LockLost, match="expired before it could be renewed"):
        await lock.release()


# Races


async def test_renewal_during_release_reports_no_loss(
    clocked_app: ClockedRota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal in flight finds the lock released. That is not a loss, because the holder released it."""
    heard: list[Event] = []
    clocked_app.subscribe(heard.append)
    answers: Counter[str] = Counter()
    under_way = asyncio.Event()
    loop = asyncio.get_running_loop()
    may_go, gone = asyncio.Event(), asyncio.Event()

    async def slow(connection: Any, segments: Any, schema: str) -> Any:
        loop.call_soon_threadsafe(under_way.set)
        while not may_go.is_set():
            await asyncio.sleep(0.01)
        found = await pipeline(connection, segments, schema)
        answers[str(found[0][0][0].renewed)] += 1
        loop.call_soon_threadsafe(gone.set)
        return found

    monkeypatch.setattr(renewal_thread, "pipeline", slow)
    company = await clocked_app.coordinator()
    right = company.release

    async def give_back(*args: Any) -> Any:
        found = await right(*args)
        may_go.set()  # released in the database; the holder has no answer yet
        await gone.wait()
        return found

    monkeypatch.setattr(company, "release", give_back)
    async with clocked_app.lock("invoices", ttl=TTL):
        clocked_app.lease_clock.advance(TTL / 3)
        await asyncio.wait_for(under_way.wait(), 60)
    assert answers == {"False": 1}
    await asyncio.sleep(0)
    assert not [event for event in heard if isinstance(event, LockForfeited)]


async def test_renewal_idle_connection_is_closed_and_reopened(
    clocked_app: ClockedRota, db: Db
) -> None:
    company = await clocked_app.coordinator()
    async with clocked_app.lock("invoices", ttl=TTL):
        await renew_times(clocked_app, db, 1, "invoices")
        assert company.renewal_thread._connection is not None
    # The thread notices first that the lock is no longer due, so the clock advances more than once.
    await clocked_app.lease_clock.advance_until(
        lambda: company.renewal_thread._connection is None,
        renewal_thread.IDLE_CONNECTION_SECONDS,
    )
    async with clocked_app.lock("invoices", ttl=TTL) as lock:
        await renew_times(clocked_app, db, 1, "invoices")
        assert lock.held


def test_renewal_lock_of_ended_event_loop_expires(rota_dsn: str) -> None:
    app = ClockedRota(rota_dsn)

    async def take() -> None:
        await app.lock("invoices", ttl=TTL).acquire()
        await (await app.open()).database.close()

    async def take_again() -> None:
        async with ClockedRota(rota_dsn, app.lease_clock) as other:
            for _ in range(2):
                assert await other.try_lock("invoices") is None
                await other.advance(TTL / 2)
            async with other.lock("invoices", wait=0):
                pass

    asyncio.run(take())
    asyncio.run(take_again())
