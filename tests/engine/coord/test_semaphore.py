"""Semaphores: at most n permits at once over all instances, and no permit is ever lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.app.locks import Permit
from rota.errors import ArgumentError, Busy, LockLost
from support.lock_faults import RENEWALS, wait_for_renewals
from support.owned_clock import ClockedRota, OwnedClock
from support.scale import scale

Db = AsyncConnection[tuple[Any, ...]]
TTL = 5.0
"""TTL of permits that real processes renew, however slow the machine is."""

LONG_TTL = 60.0
"""TTL of permits that expire by a clock of the test."""

POOLED = os.environ.get("ROTA_TEST_POOLER") == "1"

HELD = """
select count(*) from rota.locks where name = 'gpu' and instance is not null and expires > rota.clock()
"""

AWAITED = "select count(awaited_since) from rota.locks where name = 'gpu'"

HOLDER = """
import asyncio, sys
from rota import LockLost, Rota

async def main() -> None:
    async with Rota(sys.argv[1]) as app:
        try:
            async with app.semaphore("gpu", 2, ttl=float(sys.argv[2])) as permit:
                print("held", permit.held, flush=True)
                await asyncio.to_thread(sys.stdin.readline)
                print("held", permit.held, flush=True)
        except LockLost as lost:
            print("lost", permit.slot, flush=True)

asyncio.run(main())
"""


@pytest.fixture
async def apps(rota_dsn: str) -> AsyncIterator[list[Rota]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Rota(rota_dsn)) for _ in range(3)]


@pytest.fixture
async def notified_apps(rota_dsn: str) -> AsyncIterator[list[Rota]]:
    """Apps whose waiting calls never poll: their clock stands still. Through a pooler they poll."""
    async with AsyncExitStack() as stack:
        apps = [Rota(rota_dsn) if POOLED else ClockedRota(rota_dsn) for _ in range(3)]
        yield [await stack.enter_async_context(app) for app in apps]


async def held(db: Db) -> int:
    row = await (await db.execute(HELD)).fetchone()
    assert row is not None
    return int(row[0])


async def free(app: Rota, n: int, ttl: float = 30) -> int:
    """Return how many of `n` permits are free now. They are acquired and released again."""
    permits = [app.semaphore("gpu", n, ttl=ttl) for _ in range(n + 1)]
    got = [permit for permit in permits if await permit.try_acquire()]
    for permit in got:
        await permit.release()
    return len(got)


async def test_semaphore_contended_never_exceeds_its_permits(apps: list[Rota], db: Db) -> None:
    inside, most, seen, tokens, over = 0, 0, 0, set[int](), asyncio.Event()
    dice = random.Random(3)

    async def contend(app: Rota) -> None:
        nonlocal inside, most
        for _ in range(3):
            async with app.semaphore("gpu", 3, ttl=5) as permit:
                inside += 1
                most = max(most, inside)
                tokens.add(permit.token)
                assert permit.permit in (1, 2, 3)
                await asyncio.sleep(dice.uniform(0, 0.02))
                inside -= 1

    async def recount() -> None:
        nonlocal seen
        while not over.is_set():
            seen = max(seen, await held(db))

    watching = asyncio.create_task(recount())
    await asyncio.gather(*(contend(app) for app in apps for _ in range(10)))
    over.set()
    await watching

    assert (most, seen) == (3, 3)
    assert len(tokens) == 90
    assert await held(db) == 0


async def test_semaphore_concurrent_first_acquirers_get_every_permit(
    apps: list[Rota], db: Db
) -> None:
    """The permits have no rows yet and each insert is slow. No client is refused while a permit is free."""
    await db.execute(
        "create function slow() returns trigger language plpgsql as"
        " 'begin perform pg_sleep(0.05); return new; end';"
        " create trigger slow before insert on rota.locks for each row execute function slow()"
    )
    permits = [app.semaphore("gpu", 5) for app in apps for _ in range(4)]

    got = await asyncio.gather(*(permit.try_acquire() for permit in permits))

    assert sum(got) == 5
    assert await held(db) == 5
    slots = sorted(permit.permit for permit, mine in zip(permits, got, strict=True) if mine)
    assert slots == [1, 2, 3, 4, 5]


async def test_semaphore_exhausted_raises_busy_that_names_a_holder(rota_app: Rota) -> None:
    async with (
        rota_app.semaphore("gpu", 2, label="render"),
        rota_app.semaphore("gpu", 2, label="render"),
    ):
        with pytest.raises(
            Busy, match=r"all 2 permits of 'gpu' are held; one held by .* \(render\)"
        ):
            await rota_app.semaphore("gpu", 2, wait=0.05).acquire()
        assert not await rota_app.semaphore("gpu", 2).try_acquire()
    assert await free(rota_app, 2) == 2


async def test_semaphore_release_wakes_a_waiting_acquirer(
    notified_apps: list[Rota], db: Db
) -> None:
    """Through a pooler there are no notifications; waiting clients poll twice a second."""
    holders = [await app.semaphore("gpu", 3).acquire() for app in notified_apps]
    waiters = [asyncio.create_task(app.semaphore("gpu", 3).acquire()) for app in notified_apps]
    async with asyncio.timeout(60):
        while (await (await db.execute(AWAITED)).fetchall()) != [(3,)]:
            await asyncio.sleep(0.01)
    for holder in holders:
        await holder.release()
        done, pending = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        waiters = list(pending)


async def test_semaphore_and_lock_of_same_name_are_independent(rota_app: Rota) -> None:
    async with rota_app.lock("gpu"), rota_app.semaphore("gpu", 1):
        assert not await rota_app.semaphore("gpu", 1).try_acquire()
        assert await rota_app.try_lock("gpu") is None


async def test_semaphore_assert_held_refuses_an_expired_permit(rota_dsn: str, db: Db) -> None:
    clock = OwnedClock()
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(ClockedRota(rota_dsn, clock)) for _ in range(3)]
        await check_expired_permit(apps, db)


async def wait_for_renewals_of_permit(db: Db, permit: int, count: int) -> None:
    asked = "select renewals from rota.locks where name = 'gpu' and slot = %s"
    async with asyncio.timeout(60):
        while await (await db.execute(asked, (permit,))).fetchall() != [(count,)]:
            await asyncio.sleep(0.01)


async def check_expired_permit(apps: list[ClockedRota], db: Db) -> None:
    first, second = [await app.semaphore("gpu", 2, ttl=LONG_TTL).acquire() for app in apps[:2]]
    company = await apps[0].coordinator()
    company.lock_renewals.remove(
        first._require_lease()
    )  # not renewed, as if this process were frozen
    async with db.transaction():
        await first.assert_held(db)
        for renewal in range(1, 4):
            await apps[0].advance(LONG_TTL / 2)
            await wait_for_renewals_of_permit(db, second.permit, renewal)
        assert not await apps[2].semaphore("gpu", 2).try_acquire(), "the transaction relies on it"
    third = await apps[2].semaphore("gpu", 2).acquire()
    assert third.permit == first.permit
    assert third.token > second.token > first.token

    with pytest.raises(LockLost, match="no longer held under token"):
        async with db.transaction():
            await first.assert_held(db)
    with pytest.raises(LockLost):
        await first.release()
    async with db.transaction():
        await second.assert_held(db)
        await third.assert_held(db)
    await second.release()
    await third.release()


# Leaks


@pytest.mark.parametrize("how", scale([signal.SIGKILL], [signal.SIGKILL, signal.SIGSTOP]))
async def test_semaphore_permit_of_killed_or_frozen_process_is_reused(
    how: signal.Signals, rota_app: Rota, rota_dsn: str, db: Db
) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
        [sys.executable, "-c", HOLDER, rota_dsn, str(TTL)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "held True\n"
        async with rota_app.semaphore("gpu", 2, ttl=TTL) as mine:
            await wait_for_renewals(db, 1, "gpu")
            assert await held(db) == 2, "both are renewed"
            process.send_signal(how)
            began = time.monotonic()
            async with rota_app.semaphore("gpu", 2, ttl=TTL, wait=60) as other:
                assert time.monotonic() - began > TTL / 3
                assert other.permit != mine.permit
                assert mine.held
                assert await held(db) == 2
                if how == signal.SIGSTOP:
                    process.send_signal(signal.SIGCONT)
                    said, _ = await asyncio.to_thread(process.communicate, "\n")
                    assert said == f"held False\nlost {other.permit}\n"
                    assert other.held
    finally:
        process.kill()
        process.communicate()


async def test_semaphore_cancelled_acquire_leaks_no_permit(rota_app: Rota, db: Db) -> None:
    await free(rota_app, 2)
    began = time.monotonic()
    await free(rota_app, 2)
    took = (
        time.monotonic() - began
    ) / 5  # two permits are acquired, one is refused, two are released
    taken, stopped, step = 0, 0, 0
    # Cancel later and later until enough acquisitions finished first: the duration of one varies.
    while step < 100 or taken < 10:
        permit = rota_app.semaphore("gpu", 2)
        task = asyncio.create_task(permit.acquire())
        await asyncio.sleep(took * step / 40)
        task.cancel()
        [outcome] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Permit):
            taken += 1
            await outcome.release()
        else:
            stopped += 1
        assert await held(db) == 0
        step += 1
    assert stopped


async def test_semaphore_cancelled_waiter_during_release_leaks_no_permit(
    apps: list[Rota], db: Db
) -> None:
    for step in range(25):
        holder = await apps[0].semaphore("gpu", 1).acquire()
        waiting = asyncio.create_task(apps[1].semaphore("gpu", 1).acquire())
        await asyncio.sleep(0.03)
        giving = asyncio.create_task(holder.release())
        await asyncio.sleep(step * 0.0004)
        waiting.cancel()
        await giving
        [outcome] = await asyncio.gather(waiting, return_exceptions=True)
        if isinstance(outcome, Permit):
            await outcome.release()
        assert await held(db) == 0


async def test_semaphore_closed_app_releases_its_permits(apps: list[Rota], rota_dsn: str) -> None:
    async with Rota(rota_dsn) as leaving:
        for _ in range(3):
            await leaving.semaphore("gpu", 3).acquire()
        assert not await apps[0].semaphore("gpu", 3).try_acquire()
    assert await free(apps[0], 3) == 3


# Another limit, during a deploy


async def test_semaphore_raised_limit_grants_new_permits_at_once(apps: list[Rota]) -> None:
    old = [await apps[0].semaphore("gpu", 2).acquire() for _ in range(2)]
    new = [await apps[1].semaphore("gpu", 4, wait=0).acquire() for _ in range(2)]

    assert {permit.permit for permit in (*old, *new)} == {1, 2, 3, 4}
    for n in (2, 4):
        assert not await apps[2].semaphore("gpu", n).try_acquire()
    await old[0].release()
    assert await apps[2].semaphore("gpu", 2).try_acquire(), "it is one of the first two"


async def test_semaphore_lowered_limit_waits_for_old_permits(apps: list[Rota]) -> None:
    old = [await apps[0].semaphore("gpu", 4).acquire() for _ in range(4)]
    by_slot = {permit.permit: permit for permit in old}
    for slot in (3, 4):
        await by_slot[slot].release()
        assert not await apps[1].semaphore("gpu", 2).try_acquire(), (
            "there are two, and both are held"
        )
    await by_slot[2].release()
    new = await apps[1].semaphore("gpu", 2, wait=0).acquire()
    assert new.permit == 2
    assert not await apps[1].semaphore("gpu", 2).try_acquire()


# Refusals


def test_semaphore_invalid_arguments_raise_argument_error(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    for n in (0, -1, 1001, 2.0, True):
        with pytest.raises(
            ArgumentError, match=r"1 to 1000 permits, .*; a lock is app\.lock\('gpu'\)"
        ):
            app.semaphore("gpu", n)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="too short"):
        app.semaphore("gpu", 1, ttl=0)


async def test_semaphore_object_in_use_raises_runtime_error(rota_app: Rota) -> None:
    """Two tasks that share the object would share the permit."""
    permit = rota_app.semaphore("gpu", 2)
    both = await asyncio.gather(permit.acquire(), permit.acquire(), return_exceptions=True)
    assert [type(each) for each in both] == [Permit, RuntimeError]
    async with permit:
        with pytest.raises(
            RuntimeError, match=r"create another one with app\.lock\(…\) or app\.semaphore"
        ):
            await permit.acquire()
    assert await free(rota_app, 2) == 2


def test_sync_semaphore_held_beyond_its_ttl_is_renewed(rota_dsn: str, direct_dsn: str) -> None:
    app = ClockedRota(rota_dsn)
    try:
        with (
            app.semaphore("gpu", 1, ttl=LONG_TTL).sync as permit,
            psycopg.connect(direct_dsn, autocommit=True) as connection,
        ):
            for renewal in range(1, 4):
                app.lease_clock.advance(LONG_TTL / 2)
                while connection.execute(RENEWALS, (["gpu"],)).fetchone() != (renewal,):
                    time.sleep(0.01)
            assert permit.held
            assert not app.semaphore("gpu", 1).sync.try_acquire()
        assert app.semaphore("gpu", 1).sync.try_acquire()
    finally:
        app.close_sync()
