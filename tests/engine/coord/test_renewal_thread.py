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

from rota import Rota
from rota.coord import lease, renewal_thread
from rota.errors import LockLost
from rota.model.events import Event, LockForfeited
from rota.store.database import pipeline
from support.lock_renewals import LONG_TTL, RENEWALS, Db, wait_for_renewals

SHORT = 0.6
"""TTL of locks that are lost on purpose."""


@pytest.fixture
def frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let locks with a TTL of `LONG_TTL` be renewed five times a second."""
    monkeypatch.setattr(lease, "RENEWALS_PER_TTL", 5 * LONG_TTL)


# Conditions that cost no lock


@pytest.mark.usefixtures("frequent_renewals")
async def test_renewal_blocked_event_loop_keeps_the_lock(
    rota_app: Rota, rota_dsn: str, direct_dsn: str
) -> None:
    async with Rota(rota_dsn) as other:
        with psycopg.connect(direct_dsn, autocommit=True) as blocking:
            async with rota_app.lock("invoices", ttl=LONG_TTL) as lock:
                while blocking.execute(RENEWALS, (["invoices"],)).fetchall() < [(3,)]:
                    time.sleep(0.02)  # noqa: ASYNC251 - the test is about a blocked loop
                assert lock.held
                assert await other.try_lock("invoices") is None


@pytest.mark.usefixtures("frequent_renewals")
async def test_renewal_exhausted_pool_keeps_the_lock(rota_dsn: str, db: Db) -> None:
    async with Rota(rota_dsn, connections=1) as app:
        client = await app.open()
        async with app.lock("invoices", ttl=LONG_TTL) as lock:
            async with client.database.connection():
                await wait_for_renewals(db, 3, "invoices")
                assert lock.held


@pytest.mark.usefixtures("frequent_renewals")
async def test_renewal_locked_row_loses_only_that_lock(
    rota_app: Rota, direct_dsn: str, db: Db
) -> None:
    """The open transaction keeps one lock row locked; the other locks are renewed as before."""
    names = [f"lock {number}" for number in range(4)]
    async with AsyncExitStack() as stack:
        others = [
            await stack.enter_async_context(rota_app.lock(name, ttl=LONG_TTL)) for name in names
        ]
        one = await rota_app.lock("invoices", ttl=SHORT).acquire()
        async with db.transaction(force_rollback=True):
            await db.execute("select rota.release_lock('invoices', 0, 'me')")
            await asyncio.wait_for(one.lost.wait(), 60)
            [[renewed]] = await (await db.execute(RENEWALS, (names,))).fetchall()
            await wait_for_renewals(db, renewed + 3, *names)
            assert all(each.held for each in others)
        with pytest.raises(LockLost, match="expired before it could be renewed"):
            await one.release()


# Conditions that cost a lock


async def test_lock_expired_while_gil_is_held_reports_not_held(rota_app: Rota) -> None:
    """As in a stopped process, no other thread runs meanwhile, and `held` needs none."""
    sleep = ctypes.PyDLL(None).usleep  # a PyDLL call keeps the GIL
    lock = await rota_app.lock("invoices", ttl=SHORT).acquire()
    assert lock.held
    sleep(int(2 * SHORT * 1e6))
    assert not lock.held
    with pytest.raises(LockLost, match="expired before it could be renewed"):
        await lock.release()


# Races


async def test_renewal_during_release_reports_no_loss(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal in flight finds the lock released. That is not a loss, because the holder released it."""
    heard: list[Event] = []
    rota_app.subscribe(heard.append)
    answers: Counter[str] = Counter()
    under_way = asyncio.Event()
    loop = asyncio.get_running_loop()
    may_go, gone = asyncio.Event(), asyncio.Event()

    async def slow(connection: Any, segments: Any, schema: str) -> Any:
        loop.call_soon_threadsafe(under_way.set)
        for _ in range(100):
            if may_go.is_set():
                break
            await asyncio.sleep(0.01)
        found = await pipeline(connection, segments, schema)
        answers[str(found[0][0][0].renewed)] += 1
        loop.call_soon_threadsafe(gone.set)
        return found

    monkeypatch.setattr(renewal_thread, "pipeline", slow)
    company = await rota_app.coordinator()
    right = company.release

    async def give_back(*args: Any) -> Any:
        found = await right(*args)
        may_go.set()  # released in the database; the holder has no answer yet
        await gone.wait()
        await asyncio.sleep(0.05)
        return found

    monkeypatch.setattr(company, "release", give_back)
    async with rota_app.lock("invoices", ttl=4):
        company.renewal_thread.wake_threadsafe()
        await asyncio.wait_for(under_way.wait(), 60)
    assert answers == {"False": 1}
    await asyncio.sleep(0)
    assert not [event for event in heard if isinstance(event, LockForfeited)]


@pytest.mark.usefixtures("frequent_renewals")
async def test_renewal_idle_connection_is_closed_and_reopened(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch, db: Db
) -> None:
    monkeypatch.setattr(renewal_thread, "IDLE_CONNECTION_SECONDS", 0.3)
    company = await rota_app.coordinator()
    async with rota_app.lock("invoices", ttl=LONG_TTL):
        await wait_for_renewals(db, 1, "invoices")
        assert company.renewal_thread._connection is not None
    async with asyncio.timeout(60):
        while company.renewal_thread._connection is not None:
            await asyncio.sleep(0.02)
    async with rota_app.lock("invoices", ttl=LONG_TTL) as lock:
        await wait_for_renewals(db, 1, "invoices")
        assert lock.held


def test_renewal_lock_of_ended_event_loop_expires(rota_dsn: str) -> None:
    app = Rota(rota_dsn)

    async def take() -> None:
        await app.lock("invoices", ttl=SHORT).acquire()
        await (await app.open()).database.close()

    async def take_again() -> None:
        async with Rota(rota_dsn) as other, other.lock("invoices", wait=60):
            pass

    asyncio.run(take())
    asyncio.run(take_again())
