"""Locks in threads, in several event loops and in sync code."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import ArgumentError, Busy, LockLost
from support.lock_faults import RENEWALS, wait_for_renewals
from support.owned_clock import ClockedRota

TTL = 30.0


@pytest.fixture
def app(rota_dsn: str) -> Iterator[Rota]:
    app = Rota(rota_dsn)
    yield app
    app.close_sync()


@pytest.fixture
def clocked_app(rota_dsn: str) -> Iterator[ClockedRota]:
    app = ClockedRota(rota_dsn)
    yield app
    app.close_sync()


def test_sync_lock_in_threads_has_one_holder_and_rising_tokens(app: Rota) -> None:
    inside, most, tokens = 0, 0, []

    def once(_: int) -> None:
        nonlocal inside, most
        with app.lock("invoices", wait=20).sync as lock:
            inside += 1
            most = max(most, inside)
            tokens.append(lock.token)
            time.sleep(0.005)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(once, range(24)))

    assert most == 1
    assert tokens == sorted(set(tokens))


async def test_sync_lock_in_running_event_loop_is_renewed(
    clocked_app: ClockedRota, db: AsyncConnection[Any]
) -> None:
    """The sync form blocks this loop, but it is renewed from a separate loop."""
    with clocked_app.lock("invoices", ttl=TTL).sync as lock:
        for renewal in range(1, 5):
            clocked_app.lease_clock.advance(TTL / 3)
            await wait_for_renewals(db, renewal, "invoices")
        assert lock.held
        assert clocked_app.lock("invoices").sync.try_acquire() is False
        with pytest.raises(Busy):
            clocked_app.lock("invoices", wait=0).sync.acquire()
    await clocked_app.close()


def test_sync_lock_acquired_before_entry_is_entered_once(app: Rota) -> None:
    lock = app.lock("invoices").sync
    assert lock.try_acquire()
    with lock:
        with pytest.raises(RuntimeError, match="is already entered"):
            lock.__enter__()
        assert lock.held
    assert not lock.held


def test_lock_in_two_event_loops_has_one_holder(app: Rota) -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    async def often() -> None:
        nonlocal inside, most
        for _ in range(8):
            async with app.lock("invoices", wait=20) as lock:
                with guard:
                    inside += 1
                    most = max(most, inside)
                await asyncio.sleep(0.02)
                assert lock.held
                with guard:
                    inside -= 1
        await app.close()

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(asyncio.run, often()) for _ in range(2)]:
            each.result()
    assert most == 1


def test_locks_of_two_event_loops_are_both_renewed(
    clocked_app: ClockedRota, direct_dsn: str
) -> None:
    acquired, over = threading.Barrier(3), threading.Event()

    async def hold(name: str) -> None:
        async with clocked_app, clocked_app.lock(name, ttl=TTL) as lock:
            await asyncio.to_thread(acquired.wait, 60)
            await asyncio.to_thread(over.wait, 60)
            assert lock.held

    names = ["one", "two"]
    with ThreadPoolExecutor(2) as pool:
        holders = [pool.submit(asyncio.run, hold(name)) for name in names]
        acquired.wait(60)
        with psycopg.connect(direct_dsn, autocommit=True) as connection:
            for renewal in range(1, 5):
                clocked_app.lease_clock.advance(TTL / 3)
                while connection.execute(RENEWALS, (names,)).fetchone() != (renewal,):
                    time.sleep(0.01)
        over.set()
        for each in holders:
            each.result()


def test_lock_in_consecutive_event_loops_has_rising_tokens(app: Rota) -> None:
    tokens = []

    async def once() -> None:
        async with app.lock("invoices", wait=1) as lock:
            tokens.append(lock.token)
        await app.close()

    for _ in range(3):
        asyncio.run(once())
    assert tokens == sorted(set(tokens))


def test_sync_lock_loss_raises_lock_lost(clocked_app: ClockedRota, direct_dsn: str) -> None:
    lock = clocked_app.lock("invoices", ttl=TTL).sync.acquire()
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        with connection.transaction():
            lock.assert_held(connection)
        connection.execute("select rota.release_lock('invoices', 0, 'me')")
        clocked_app.lease_clock.advance(TTL / 3)
        while lock.held:
            time.sleep(0.01)
        with pytest.raises(LockLost, match="no longer held under token"):
            lock.assert_held(connection)

    def leave(error: Exception | None) -> None:
        with clocked_app.lock("invoices", ttl=TTL).sync:
            with psycopg.connect(direct_dsn, autocommit=True) as connection:
                connection.execute("select rota.release_lock('invoices', 0, 'me')")
            if error is not None:
                raise error

    with pytest.raises(LockLost, match="an operator released it"):
        lock.release()
    with pytest.raises(LockLost):
        leave(None)
    with pytest.raises(KeyError) as caught:
        leave(KeyError("mine"))
    assert "was lost" in caught.value.__notes__[0]


async def test_sync_lock_assert_held_refuses_an_async_connection(
    app: Rota, direct_dsn: str
) -> None:
    with app.lock("invoices").sync as lock:
        async with await psycopg.AsyncConnection.connect(direct_dsn) as connection:
            with pytest.raises(ArgumentError, match=r"await lock\.assert_held"):
                lock.assert_held(connection)
