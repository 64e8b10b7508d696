"""The renewal thread keeps locks held while the program is busy."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.coord import renewal_thread
from rota.errors import LockLost
from rota.model.events import Event, LockForfeited
from rota.store import locks
from rota.store.database import pipeline
from rota.store.query import Query

SHORT = 0.6
Db = AsyncConnection[tuple[Any, ...]]


async def renewed(db: Db, name: str = "invoices") -> int:
    rows = await (
        await db.execute("select renewals from rota.locks where name = %s", (name,))
    ).fetchall()
    return rows[0][0] if rows else 0


# Conditions that cost no lock


async def test_a_blocked_event_loop(rota_app: Rota, rota_dsn: str) -> None:
    async with Rota(rota_dsn) as other:
        async with rota_app.lock("invoices", ttl=SHORT) as lock:
            time.sleep(3 * SHORT)  # noqa: ASYNC251 - a blocked loop is what this is about
            assert lock.held
            assert await other.try_lock("invoices") is None


async def test_a_pool_with_nothing_left(rota_dsn: str, db: Db) -> None:
    async with Rota(rota_dsn, connections=1) as app:
        client = await app.open()
        async with app.lock("invoices", ttl=SHORT) as lock:
            async with client.database.connection():
                await asyncio.sleep(3 * SHORT)
                assert lock.held
                assert await renewed(db) > 5


async def test_a_transaction_by_hand_on_one_of_them(
    rota_app: Rota, direct_dsn: str, db: Db
) -> None:
    """The open transaction keeps one lock row locked for longer than the TTL of the other locks."""
    async with AsyncExitStack() as stack:
        others = [
            await stack.enter_async_context(rota_app.lock(f"lock {number}", ttl=SHORT))
            for number in range(4)
        ]
        one = await rota_app.lock("invoices", ttl=SHORT).acquire()
        async with db.transaction(force_rollback=True):
            await db.execute("select rota.release_lock('invoices', 0, 'me')")
            await asyncio.wait_for(one.lost.wait(), 60)
            await asyncio.sleep(SHORT)
            assert all(each.held for each in others)
        with pytest.raises(LockLost, match="expired before it could be renewed"):
            await one.release()


async def test_five_hundred_are_renewed_in_a_few_statements(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch, db: Db
) -> None:
    many, ttl = 500, 3.0
    statements: list[int] = []
    right = locks.renew

    def renew(instance: UUID, held: Sequence[tuple[str, int, float]]) -> Query[locks.RenewedLock]:
        statements.append(len(held))
        return right(instance, held)

    monkeypatch.setattr(locks, "renew", renew)
    held = [rota_app.lock(f"lock {number}", ttl=ttl) for number in range(many)]
    await asyncio.gather(*(lock.acquire() for lock in held))
    began = time.monotonic()
    await asyncio.sleep(2.5)
    assert all(lock.held for lock in held)
    [[least]] = await (await db.execute("select min(renewals) from rota.locks")).fetchall()
    took = time.monotonic() - began
    print(f"{sum(statements)} renewals in {len(statements)} statements in {took:.1f} s")
    assert least >= 2
    assert len(statements) <= 4 * took / (ttl / 3)
    await asyncio.gather(*(lock.release() for lock in held))


# Conditions that cost a lock


async def test_code_that_lets_no_other_thread_run_sees_it_first_thing(rota_app: Rota) -> None:
    """As in a stopped process, no other thread runs meanwhile, and `held` needs none."""
    sleep = ctypes.PyDLL(None).usleep  # a PyDLL call keeps the GIL
    lock = await rota_app.lock("invoices", ttl=SHORT).acquire()
    assert lock.held
    sleep(int(2 * SHORT * 1e6))
    assert not lock.held
    with pytest.raises(LockLost, match="expired before it could be renewed"):
        await lock.release()


# Races


async def test_a_renewal_that_meets_the_giving_back_tells_of_no_loss(
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


async def test_its_connection_is_closed_when_there_has_been_nothing_for_a_while(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal_thread, "IDLE_CONNECTION_SECONDS", 0.3)
    company = await rota_app.coordinator()
    async with rota_app.lock("invoices", ttl=SHORT):
        await asyncio.sleep(SHORT)
        assert company.renewal_thread._connection is not None
    async with asyncio.timeout(60):
        while company.renewal_thread._connection is not None:
            await asyncio.sleep(0.02)
    async with rota_app.lock("invoices", ttl=SHORT) as lock:
        await asyncio.sleep(1.5 * SHORT)
        assert lock.held


def test_what_a_loop_held_that_is_gone_is_not_renewed_for_ever(rota_dsn: str) -> None:
    app = Rota(rota_dsn)

    async def take() -> None:
        await app.lock("invoices", ttl=SHORT).acquire()
        await (await app.open()).database.close()

    async def take_again() -> None:
        async with Rota(rota_dsn) as other, other.lock("invoices", wait=3 * SHORT):
            pass

    asyncio.run(take())
    asyncio.run(take_again())
