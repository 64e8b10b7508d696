"""Locks: acquisition, loss, cancellation, assertion and misuse."""

from __future__ import annotations

import asyncio
import time

import pytest

from coord.losing import freeze, take_away
from rota import Rota
from rota.errors import ArgumentError, Busy, LockLost
from rota.model.events import Event, LockAcquired, LockForfeited, LockReleased

SHORT = 0.6


async def test_one_at_a_time_and_tokens_only_rise(rota_app: Rota) -> None:
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


async def test_a_lock_that_is_held_is_refused_with_who_holds_it(rota_app: Rota) -> None:
    async with rota_app.lock("invoices", label="nightly"):
        assert await rota_app.try_lock("invoices") is None
        with pytest.raises(Busy, match=r"'invoices' is held by this process \(nightly\)"):
            await rota_app.lock("invoices", wait=0.1).acquire()
    lock = await rota_app.try_lock("invoices")
    assert lock is not None
    async with lock:
        assert lock.held
    assert not lock.held


async def test_what_is_short_is_two_statements_and_a_renewal_is_a_third(
    rota_app: Rota, rota_dsn: str
) -> None:
    lock = await rota_app.lock("invoices", ttl=SHORT).acquire()
    await lock.release()
    async with rota_app.lock("invoices", ttl=SHORT):
        await asyncio.sleep(SHORT / 2)
    client = await rota_app.open()
    async with client.database.connection() as connection:
        cursor = await connection.execute("select renewals, instance from rota.locks")
        assert await cursor.fetchall() == [(1, None)]


# Loss


async def test_what_was_taken_away_is_told(rota_app: Rota) -> None:
    heard: list[Event] = []
    rota_app.subscribe(heard.append)
    seen = []

    async def body() -> None:
        async with rota_app.lock("invoices", ttl=SHORT) as lock:
            await take_away(rota_app)
            await asyncio.wait_for(lock.lost.wait(), 60)
            seen.append(lock.held)

    with pytest.raises(LockLost, match="an operator released it"):
        await body()
    assert seen == [False]
    assert [type(each) for each in heard] == [LockAcquired, LockForfeited]
    async with rota_app.lock("invoices", ttl=SHORT):
        pass
    await asyncio.sleep(0)
    assert isinstance(heard[-1], LockReleased)


async def test_it_is_told_at_the_end_of_a_block_that_ends_before_anybody_noticed(
    rota_app: Rota,
) -> None:
    async def body() -> None:
        async with rota_app.lock("invoices"):
            await take_away(rota_app)

    with pytest.raises(LockLost, match="an operator released it"):
        await body()


async def test_an_error_of_the_block_is_not_hidden_by_the_loss(rota_app: Rota) -> None:
    async def body() -> None:
        async with rota_app.lock("invoices", ttl=SHORT) as lock:
            await take_away(rota_app)
            await lock.lost.wait()
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        await body()
    [note] = caught.value.__notes__
    assert note.startswith("lock 'invoices' (token")
    assert "was lost" in note


async def test_what_was_lost_can_be_taken_again_with_the_same_object(rota_app: Rota) -> None:
    lock = rota_app.lock("invoices", ttl=SHORT)
    tokens = []
    for _ in range(3):
        await lock.acquire()
        tokens.append(lock.token)
        assert not lock.lost.is_set()
        await take_away(rota_app)
        await asyncio.wait_for(lock.lost.wait(), 60)
        with pytest.raises(LockLost):
            await lock.release()
        await lock.release()  # a second release does nothing
    assert tokens == sorted(set(tokens))


async def test_a_late_word_of_a_loss_is_not_about_the_next_hold(rota_app: Rota) -> None:
    """The renewal thread reports the loss of the old lease only after the lock has been acquired again."""
    lock = await rota_app.lock("invoices", on_lost="cancel").acquire()
    company = await rota_app.coordinator()
    old = lock._require_lease()
    await take_away(rota_app)
    with pytest.raises(LockLost):
        await lock.release()

    async with lock:
        lock._report_lost(company, old, "late")
        await asyncio.sleep(0.05)
        assert not lock.lost.is_set()
        assert lock.held


# Cancellation of the block


async def test_the_block_is_cancelled_if_that_is_wanted(rota_app: Rota) -> None:
    async def body() -> None:
        async with rota_app.lock("invoices", ttl=SHORT, on_lost="cancel"):
            await take_away(rota_app)
            await asyncio.sleep(30)

    with pytest.raises(LockLost):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_block_that_takes_no_notice_of_being_cancelled_is_told_at_its_end(
    rota_app: Rota,
) -> None:
    async def body() -> None:
        async with rota_app.lock("invoices", ttl=SHORT, on_lost="cancel"):
            await take_away(rota_app)
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)  # swallows the cancellation

    with pytest.raises(LockLost):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_who_is_cancelled_from_outside_as_well_is_cancelled(rota_app: Rota) -> None:
    async def body() -> None:
        async with rota_app.lock("invoices", ttl=SHORT, on_lost="cancel"):
            await take_away(rota_app)
            await asyncio.sleep(30)

    def cancel(event: Event) -> None:
        if isinstance(event, LockForfeited):
            task.cancel()

    task = asyncio.create_task(body())
    rota_app.subscribe(cancel)
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert task.cancelling() == 1, "his own is left, and ours is not"
    assert "was lost" in caught.value.__notes__[0]


@pytest.mark.parametrize("where", ["around", "within"])
async def test_a_timeout_is_a_timeout_and_a_loss_is_a_loss(rota_app: Rota, where: str) -> None:
    async def around(seconds: float) -> None:
        async with asyncio.timeout(seconds):
            async with rota_app.lock("invoices", ttl=SHORT, on_lost="cancel"):
                if seconds > 1:
                    await take_away(rota_app)
                await asyncio.sleep(30)

    async def within(seconds: float) -> None:
        async with rota_app.lock("invoices", ttl=SHORT, on_lost="cancel"):
            async with asyncio.timeout(seconds):
                if seconds > 1:
                    await take_away(rota_app)
                await asyncio.sleep(30)

    body = around if where == "around" else within
    with pytest.raises(TimeoutError):
        await body(0.2)
    with pytest.raises(LockLost):
        await body(20)
    assert await rota_app.try_lock("invoices") is not None


# Assertion


async def test_an_assertion_keeps_the_lock_and_refuses_a_zombie(rota_app: Rota) -> None:
    client = await rota_app.open()
    lock = await rota_app.lock("invoices", ttl=SHORT).acquire()
    freeze(client.coordinator, lock)
    async with client.database.transaction() as connection:
        await lock.assert_held(connection)
        await asyncio.sleep(2 * SHORT)
        assert await rota_app.try_lock("invoices") is None, "the transaction relies on it"
    taken = await rota_app.try_lock("invoices")
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


async def test_it_is_given_back_while_a_transaction_still_relies_on_it(rota_app: Rota) -> None:
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


async def test_one_object_is_for_one_at_a_time(rota_app: Rota) -> None:
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
        await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match="lock 'invoices' is already being acquired"):
            await lock.acquire()
    assert (await taking).held
    await lock.release()


@pytest.mark.parametrize(
    "wrong",
    [{"ttl": 0.1}, {"on_lost": "panic"}, {"name": ""}, {"name": "n" * 201}, {"name": "a\0"}],
)
async def test_what_makes_no_sense_is_refused(rota_app: Rota, wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        rota_app.lock(**{"name": "invoices", **wrong})  # type: ignore[arg-type]


def test_code_that_does_not_await_has_it_too(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    try:
        with app.lock("invoices", ttl=SHORT).sync as lock:
            time.sleep(2 * SHORT)
            assert lock.held
    finally:
        app.close_sync()
