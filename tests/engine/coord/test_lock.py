"""Locks: acquisition, loss, cancellation, assertion and misuse."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import ArgumentError, Busy, LockLost
from rota.model.events import Event, LockAcquired, LockForfeited, LockReleased
from support.lock_faults import RENEWALS, release_by_operator, stop_renewal, wait_for_renewals
from support.owned_clock import ClockedRota

TTL = 30.0
RENEWAL_SECONDS = TTL / 3
"""Seconds after which a lock is renewed."""

Db = AsyncConnection[tuple[Any, ...]]


async def test_lock_with_ten_contenders_has_one_holder_and_rising_tokens(rota_app: Rota) -> None:
    inside, most, tokens = 0, 0, []

    async def once() -> None:
        nonlocal inside, most
        async with rota_app.lock("invoices", ttl=5) as lock:
            inside += 1
            most = max(most, inside)
            tokens.append(lock.token)
            await asyncio.sleep(0.01)
            inside -= 1

    await asyncio.gather(*(once() for _ in range(10)))

    assert most == 1
    assert tokens == sorted(set(tokens))


async def test_acquire_of_held_lock_raises_busy_that_names_the_holder(rota_app: Rota) -> None:
    async with rota_app.lock("invoices", label="nightly"):
        assert await rota_app.try_lock("invoices") is None
        with pytest.raises(Busy, match=r"'invoices' is held by this process \(nightly\)"):
            await rota_app.lock("invoices", wait=0.1).acquire()
    lock = await rota_app.try_lock("invoices")
    assert lock is not None
    async with lock:
        assert lock.held
    assert not lock.held


async def test_lock_held_for_half_its_ttl_is_renewed_once(clocked_app: ClockedRota, db: Db) -> None:
    lock = await clocked_app.lock("invoices", ttl=TTL).acquire()
    await lock.release()
    async with clocked_app.lock("invoices", ttl=TTL):
        clocked_app.lease_clock.advance(RENEWAL_SECONDS)
        await wait_for_renewals(db, 1, "invoices")
        clocked_app.lease_clock.advance(TTL / 2 - RENEWAL_SECONDS)
    cursor = await db.execute("select renewals, instance from rota.locks")
    assert await cursor.fetchall() == [(1, None)]


# Loss


async def test_lock_released_by_operator_sets_lost_and_publishes_forfeited(
    clocked_app: ClockedRota,
) -> None:
    heard: list[Event] = []
    clocked_app.subscribe(heard.append)
    seen = []

    async def body() -> None:
        async with clocked_app.lock("invoices", ttl=TTL) as lock:
            await release_by_operator(clocked_app)
            clocked_app.lease_clock.advance(RENEWAL_SECONDS)
            await asyncio.wait_for(lock.lost.wait(), 60)
            seen.append(lock.held)

    with pytest.raises(LockLost, match="an operator released it"):
        await body()
    assert seen == [False]
    assert [type(each) for each in heard] == [LockAcquired, LockForfeited]
    async with clocked_app.lock("invoices", ttl=TTL):
        pass
    await asyncio.sleep(0)
    assert isinstance(heard[-1], LockReleased)


async def test_block_ending_before_the_loss_is_noticed_raises_lock_lost(
    rota_app: Rota,
) -> None:
    async def body() -> None:
        async with rota_app.lock("invoices"):
            await release_by_operator(rota_app)

    with pytest.raises(LockLost, match="an operator released it"):
        await body()


async def test_block_error_after_loss_is_raised_with_a_note(clocked_app: ClockedRota) -> None:
    async def body() -> None:
        async with clocked_app.lock("invoices", ttl=TTL) as lock:
            await release_by_operator(clocked_app)
            clocked_app.lease_clock.advance(RENEWAL_SECONDS)
            await lock.lost.wait()
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        await body()
    [note] = caught.value.__notes__
    assert note.startswith("lock 'invoices' (token")
    assert "was lost" in note


async def test_lock_object_after_loss_can_be_acquired_again(clocked_app: ClockedRota) -> None:
    lock = clocked_app.lock("invoices", ttl=TTL)
    tokens = []
    for _ in range(3):
        await lock.acquire()
        tokens.append(lock.token)
        assert not lock.lost.is_set()
        await release_by_operator(clocked_app)
        clocked_app.lease_clock.advance(RENEWAL_SECONDS)
        await asyncio.wait_for(lock.lost.wait(), 60)
        with pytest.raises(LockLost):
            await lock.release()
        await lock.release()  # a second release does nothing
    assert tokens == sorted(set(tokens))


async def test_late_loss_callback_of_an_old_lease_keeps_the_new_lease(rota_app: Rota) -> None:
    """The renewal thread reports the loss of the old lease only after the lock has been acquired again."""
    lock = await rota_app.lock("invoices", on_lost="cancel").acquire()
    company = await rota_app.coordinator()
    old = lock._require_lease()
    await release_by_operator(rota_app)
    with pytest.raises(LockLost):
        await lock.release()

    async with lock:
        lock._report_lost(company, old, "late")
        later = asyncio.Event()
        company.call_in_loop(later.set)  # after the callback of the loss
        await later.wait()
        assert not lock.lost.is_set()
        assert lock.held


# Cancellation of the block


async def test_block_with_on_lost_cancel_is_cancelled_on_loss(clocked_app: ClockedRota) -> None:
    async def body() -> None:
        async with clocked_app.lock("invoices", ttl=TTL, on_lost="cancel"):
            await release_by_operator(clocked_app)
            clocked_app.lease_clock.advance(RENEWAL_SECONDS)
            await asyncio.sleep(30)

    with pytest.raises(LockLost):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_block_swallowing_cancellation_raises_lock_lost_at_its_end(
    clocked_app: ClockedRota,
) -> None:
    async def body() -> None:
        async with clocked_app.lock("invoices", ttl=TTL, on_lost="cancel"):
            await release_by_operator(clocked_app)
            clocked_app.lease_clock.advance(RENEWAL_SECONDS)
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)  # swallows the cancellation

    with pytest.raises(LockLost):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_block_cancelled_by_loss_and_from_outside_stays_cancelled(
    clocked_app: ClockedRota,
) -> None:
    async def body() -> None:
        async with clocked_app.lock("invoices", ttl=TTL, on_lost="cancel"):
            await release_by_operator(clocked_app)
            clocked_app.lease_clock.advance(RENEWAL_SECONDS)
            await asyncio.sleep(30)

    def cancel(event: Event) -> None:
        if isinstance(event, LockForfeited):
            task.cancel()

    task = asyncio.create_task(body())
    clocked_app.subscribe(cancel)
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert task.cancelling() == 1, "his own is left, and ours is not"
    assert "was lost" in caught.value.__notes__[0]


@pytest.mark.parametrize("where", ["around", "within"])
async def test_block_timeout_raises_timeout_error_and_loss_raises_lock_lost(
    clocked_app: ClockedRota, where: str
) -> None:
    async def around(seconds: float) -> None:
        async with asyncio.timeout(seconds):
            async with clocked_app.lock("invoices", ttl=TTL, on_lost="cancel"):
                if seconds > 1:
                    await release_by_operator(clocked_app)
                    clocked_app.lease_clock.advance(RENEWAL_SECONDS)
                await asyncio.sleep(30)

    async def within(seconds: float) -> None:
        async with clocked_app.lock("invoices", ttl=TTL, on_lost="cancel"):
            async with asyncio.timeout(seconds):
                if seconds > 1:
                    await release_by_operator(clocked_app)
                    clocked_app.lease_clock.advance(RENEWAL_SECONDS)
                await asyncio.sleep(30)

    body = around if where == "around" else within
    with pytest.raises(TimeoutError):
        await body(0.2)
    with pytest.raises(LockLost):
        await body(20)
    assert await clocked_app.try_lock("invoices") is not None


# Assertion


async def test_assert_held_blocks_acquirers_and_refuses_an_expired_holder(
    clocked_app: ClockedRota,
) -> None:
    client = await clocked_app.open()
    lock = await clocked_app.lock("invoices", ttl=TTL).acquire()
    stop_renewal(client.coordinator, lock)
    async with client.database.transaction() as connection:
        await lock.assert_held(connection)
        await clocked_app.advance(2 * TTL)
        assert await clocked_app.try_lock("invoices") is None, "the transaction relies on it"
    taken = await clocked_app.try_lock("invoices")
    assert taken is not None

    async def write() -> None:
        async with client.database.transaction() as connection:
            await lock.assert_held(connection)

    with pytest.raises(LockLost, match="no longer held under token"):
        await write()
    with pytest.raises(LockLost):
        await lock.release()
    assert taken.token > lock.token
    await taken.release()


async def test_release_during_asserting_transaction_returns_at_once(rota_app: Rota) -> None:
    client = await rota_app.open()
    lock = await rota_app.lock("invoices").acquire()
    async with client.database.transaction() as connection:
        await lock.assert_held(connection)
        async with asyncio.timeout(60):
            await lock.release()
        with pytest.raises(Busy, match="asserted by an open transaction"):
            await rota_app.lock("invoices", wait=0).acquire()
    async with rota_app.lock("invoices", wait=0):
        pass


# Misuse


async def test_lock_object_in_use_raises_runtime_error(rota_app: Rota) -> None:
    lock = rota_app.lock("invoices")

    async def enter() -> None:
        async with lock:
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="has not been acquired"):
        await lock.release()
    async with lock:
        with pytest.raises(RuntimeError, match="is already entered"):
            await enter()
        with pytest.raises(RuntimeError, match="is already held"):
            await lock.acquire()
        assert lock.held
    async with rota_app.lock("invoices"):
        taking = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="lock 'invoices' is already being acquired"):
            await lock.acquire()
    assert (await taking).held
    await lock.release()


@pytest.mark.parametrize(
    "wrong",
    [{"ttl": 0.1}, {"on_lost": "panic"}, {"name": ""}, {"name": "n" * 201}, {"name": "a\0"}],
)
async def test_lock_with_invalid_option_raises_argument_error(
    rota_app: Rota, wrong: dict[str, object]
) -> None:
    with pytest.raises(ArgumentError):
        rota_app.lock(**{"name": "invoices", **wrong})  # type: ignore[arg-type]


def test_sync_lock_held_beyond_its_ttl_is_renewed(rota_dsn: str, direct_dsn: str) -> None:
    app = ClockedRota(rota_dsn)
    try:
        with (
            app.lock("invoices", ttl=TTL).sync as lock,
            psycopg.connect(direct_dsn, autocommit=True) as connection,
        ):
            for renewal in range(1, 5):
                app.lease_clock.advance(RENEWAL_SECONDS)
                while connection.execute(RENEWALS, (["invoices"],)).fetchone() != (renewal,):
                    assert lock.held
            assert lock.held
    finally:
        app.close_sync()
