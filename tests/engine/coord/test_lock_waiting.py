"""Waiting for a lock: release wakes a waiting client, and a cancelled client does not keep the lock."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.coord import acquire
from rota.errors import Busy, DatabaseUnavailable
from rota.store import pg_errors
from rota.store.database import run
from rota.testing import Proxy
from rota.testing.proxy.connection import CutPoint
from support.lock_faults import release_by_operator, stop_renewal, wait_until_awaited
from support.owned_clock import ClockedRota

POOLED = os.environ.get("ROTA_TEST_POOLER") == "1"
Db = AsyncConnection[tuple[Any, ...]]
TTL = 30.0


@pytest.fixture
def proxy(direct_dsn: str) -> Iterator[Proxy]:
    with Proxy(direct_dsn) as started:
        yield started


@pytest.fixture
async def app(proxy: Proxy) -> AsyncIterator[Rota]:
    """App that reaches the database through the proxy."""
    async with Rota(proxy.dsn) as app:
        yield app


@pytest.fixture
async def notified_app(rota_dsn: str) -> AsyncIterator[Rota]:
    """App whose waiting calls never poll: its clock stands still. Through a pooler they poll."""
    async with Rota(rota_dsn) if POOLED else ClockedRota(rota_dsn) as app:
        yield app


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The attempts to acquire a lock that have been answered: True if one acquired it."""
    answered: list[bool] = []

    async def noted(*given: Any) -> Any:
        answers = await run(*given)
        answered.append(answers[0].token is not None)
        return answers

    monkeypatch.setattr(acquire, "run", noted)
    return answered


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def is_free(db: Db, name: str = "invoices") -> bool:
    found = await (
        await db.execute("select instance is null from rota.locks where name = %s", (name,))
    ).fetchall()
    return found in ([], [(True,)])


async def subscribers(app: Rota) -> int:
    client = await app.open()
    return sum(map(len, client.listener._subscribers.values()))


@pytest.mark.parametrize("wait", [0, 0.3])
async def test_acquire_of_held_lock_raises_busy_after_the_wait(rota_app: Rota, wait: float) -> None:
    async with rota_app.lock("invoices"):
        began = time.monotonic()
        with pytest.raises(Busy):
            await rota_app.lock("invoices", wait=wait).acquire()
        took = time.monotonic() - began
    assert took >= wait
    assert await subscribers(rota_app) == 0


async def test_release_wakes_waiting_acquirer(notified_app: Rota, db: Db) -> None:
    holder = await notified_app.lock("invoices").acquire()
    for _ in range(4):
        waiting = asyncio.create_task(notified_app.lock("invoices").acquire())
        await wait_until_awaited(db)
        await holder.release()
        holder = await waiting
    await holder.release()
    assert await subscribers(notified_app) == 0


@pytest.mark.parametrize("how", ["taken away", "closed"])
async def test_waiting_acquirer_is_notified_of_lock_freed_without_release(
    notified_app: Rota, rota_dsn: str, db: Db, how: str
) -> None:
    async with Rota(rota_dsn) as other:
        await other.lock("invoices").acquire()
        waiting = asyncio.create_task(notified_app.lock("invoices").acquire())
        await wait_until_awaited(db)
        if how == "taken away":
            await release_by_operator(notified_app)
        else:
            await other.close()
        taken = await waiting
        await taken.release()


@pytest.mark.parametrize("how", ["run out", "transaction over"])
async def test_waiting_acquirer_gets_expired_lock(
    clocked_app: ClockedRota, rota_dsn: str, db: Db, how: str, attempts: list[bool]
) -> None:
    async with ClockedRota(rota_dsn, clocked_app.lease_clock) as other:
        client = await other.open()
        lock = await other.lock("invoices", ttl=TTL).acquire()
        stop_renewal(client.coordinator, lock)
        # The clock advances until the lock is acquired; this lease does not expire meanwhile.
        waiting = asyncio.create_task(clocked_app.lock("invoices", ttl=86400).acquire())
        await wait_until_awaited(db)
        clock = clocked_app.lease_clock
        if how == "run out":
            await clocked_app.advance(TTL)
        else:
            async with client.database.transaction() as connection:
                await lock.assert_held(connection)
                await clocked_app.advance(2 * TTL)
                attempts.clear()
                await clock.advance_until(lambda: len(attempts) > 2)
                assert not waiting.done()
        await clock.advance_until(waiting.done)
        taken = await waiting
        await taken.release()


async def test_acquire_without_notifications_polls(rota_dsn: str, attempts: list[bool]) -> None:
    async with Rota(rota_dsn, notify=False) as app:
        holder = await app.lock("invoices").acquire()
        waiting = asyncio.create_task(app.lock("invoices").acquire())
        await until(lambda: len(attempts) > 4)
        assert not waiting.done()
        await holder.release()
        lock = await waiting
        await lock.release()
        assert await subscribers(app) == 0


async def test_acquire_by_forty_clients_grants_the_lock_in_turn(rota_app: Rota) -> None:
    order: list[int] = []

    async def once() -> None:
        async with rota_app.lock("invoices", wait=60) as lock:
            order.append(lock.token)

    await asyncio.gather(*(once() for _ in range(40)))
    assert order == sorted(set(order))
    assert len(order) == 40


# Cancellation


async def turns(many: int) -> None:
    """Yield to the event loop `many` times; each turn takes some microseconds."""
    for _ in range(many):
        await asyncio.sleep(0)


async def warm(app: Rota) -> None:
    """Open a pooled connection, because the connection of a cancelled call is closed."""
    client = await app.open()
    async with client.database.connection() as connection:
        await connection.execute("select 1")


async def test_cancelled_acquire_does_not_keep_the_lock(rota_app: Rota, db: Db) -> None:
    """The task is cancelled at every point of the acquisition. A lock it may have acquired is released."""
    fates = {"taken": 0, "cancelled": 0}
    position = 0
    # The number of turns an acquisition takes varies, so the positions repeat until both outcomes occurred.
    while not (fates["taken"] > 3 and fates["cancelled"] > 10):
        await warm(rota_app)
        lock = rota_app.lock("invoices")
        taking = asyncio.create_task(lock.acquire())
        await turns(position)
        taking.cancel()
        await asyncio.wait([taking])
        if taking.cancelled():
            fates["cancelled"] += 1
        else:
            fates["taken"] += 1
            await (await taking).release()
            position = -1 if fates["taken"] % 4 == 0 else position
        assert not lock.held
        assert await is_free(db), f"cancelled after {position} turns of the loop"
        position += 1 + max(position, 0) // 10
    assert await subscribers(rota_app) == 0


async def test_cancelled_waiting_acquire_leaves_the_lock_free(rota_app: Rota, db: Db) -> None:
    got, position = 0, 0
    while got < 4:
        holder = await rota_app.lock("invoices").acquire()
        waiting = asyncio.create_task(rota_app.lock("invoices").acquire())
        await wait_until_awaited(db)
        giving_back = asyncio.create_task(holder.release())
        await turns(position)
        waiting.cancel()
        await asyncio.wait([waiting, giving_back])
        if not waiting.cancelled():
            got += 1
            await (await waiting).release()
        assert await is_free(db), f"cancelled after {position} turns of the loop"
        position += 1 + position // 5
    assert position > 10
    assert await subscribers(rota_app) == 0


async def test_cancelled_release_still_frees_the_lock(rota_app: Rota, db: Db) -> None:
    done, position = 0, 1
    while done < 3:
        lock = await rota_app.lock("invoices").acquire()
        giving_back = asyncio.create_task(lock.release())
        await turns(position)
        giving_back.cancel()
        await asyncio.wait([giving_back])
        done += not giving_back.cancelled()
        assert await is_free(db), f"cancelled after {position} turns of the loop"
        await lock.release()
        position += 1 + position // 5
    assert position > 10


async def test_release_cancelled_twice_returns_during_outage(app: Rota, proxy: Proxy) -> None:
    lock = await app.lock("invoices").acquire()
    proxy.drop()
    giving_back = asyncio.create_task(lock.release())
    await turns(100)
    giving_back.cancel()
    await turns(100)
    assert not giving_back.done()
    giving_back.cancel()
    # The proxy drops all data: the release itself would last as long as the outage.
    await asyncio.wait([giving_back], timeout=60)
    assert giving_back.cancelled()
    proxy.heal()


# Lost answers


async def test_acquire_with_lost_answer_is_resent_and_acquires_once(
    app: Rota, proxy: Proxy, db: Db
) -> None:
    await app.lock("warm").acquire()
    wheres: list[CutPoint] = ["sent", "answered", "before", "answered"]
    for where in wheres:
        proxy.cut(where, matching="insert into rota.locks")
        async with asyncio.timeout(60):
            lock = await app.lock("invoices").acquire()
        # The connection breaks before the cut is recorded.
        await asyncio.to_thread(proxy.wait_for_cuts)
        found = await (
            await db.execute("select token from rota.locks where name = 'invoices'")
        ).fetchall()
        assert found == [(lock.token,)]
        assert lock.held
        await lock.release()
        assert await is_free(db)
        proxy.cuts.clear()


@pytest.mark.parametrize("wait", [0, 0.05])
async def test_acquire_without_answer_raises_and_frees_the_lock(
    app: Rota, proxy: Proxy, db: Db, wait: float
) -> None:
    """It raises DatabaseUnavailable, not Busy, because the state of the lock is unknown."""
    await app.lock("warm").acquire()
    # Every answer is lost.
    for _ in range(8):
        proxy.cut("answered", matching="insert into rota.locks")
    with pytest.raises(DatabaseUnavailable):
        await app.lock("invoices", wait=wait).acquire()
    assert proxy.wait_for_cuts(1)
    assert await is_free(db)


async def test_acquire_answered_after_expiry_acquires_again(
    proxy: Proxy, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease has expired when the answer arrives, so the client acquires the lock again."""
    sent = asyncio.Event()

    async def noted(*given: Any) -> Any:
        sent.set()
        return await run(*given)

    async with ClockedRota(proxy.dsn) as app:
        await app.lock("warm").acquire()
        monkeypatch.setattr(acquire, "run", noted)
        proxy.hold()
        taking = asyncio.create_task(app.lock("invoices", ttl=TTL).acquire())
        await sent.wait()
        app.lease_clock.advance(TTL)
        proxy.heal()
        lock = await taking
        assert lock.held
        assert await (
            await db.execute("select token from rota.locks where name = 'invoices'")
        ).fetchall() == [(lock.token,)]
        await lock.release()


async def test_acquire_during_outage_waits_for_the_database(
    app: Rota, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.refuse()
    proxy.reset()
    failures: list[str] = []

    def noted(error: BaseException) -> bool:
        failures.append(str(error))
        return is_transient(error)

    is_transient = pg_errors.is_transient
    monkeypatch.setattr(pg_errors, "is_transient", noted)
    taking = asyncio.create_task(app.lock("invoices", wait=60).acquire())
    await until(lambda: len(failures) > 2)
    assert not taking.done()
    proxy.heal()
    lock = await asyncio.wait_for(taking, 60)
    await lock.release()


@pytest.mark.parametrize("slow", [1, 99])
async def test_acquire_answered_too_late_is_retried_a_few_times(
    clocked_app: ClockedRota, monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """A process that is stopped during the acquisition resumes with a lease that has expired."""
    asked = 0

    async def late(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        answer = await run(*given)
        if asked <= slow:
            clocked_app.lease_clock.advance(TTL)
        return answer

    monkeypatch.setattr(acquire, "run", late)
    lock = clocked_app.lock("invoices", ttl=TTL, wait=0.1)
    if slow == 1:
        async with lock:
            assert lock.held
            assert asked == 2
    else:
        with pytest.raises(DatabaseUnavailable, match="takes longer to answer than a ttl"):
            await lock.acquire()
        assert asked == acquire.MAX_LATE_ANSWERS
