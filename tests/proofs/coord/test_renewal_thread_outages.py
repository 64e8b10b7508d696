"""The renewal thread during network outages.

A short outage costs no lock. In a long one the holder reports the loss before another instance can acquire
the lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from rota import Rota
from rota.coord.lease import LeaseClock
from rota.errors import LockLost
from rota.model.events import Event, LockForfeited
from rota.testing import Proxy

Db = AsyncConnection[tuple[Any, ...]]

WAYS = ("drop", "reset", "hold")
"""Data is dropped silently; connections are reset and none can be opened; all data is delayed."""


def begin_outage(proxy: Proxy, how: str) -> None:
    match how:
        case "drop":
            proxy.drop()
        case "hold":
            proxy.hold()
        case "reset":
            proxy.refuse()
            proxy.reset()


@contextmanager
def no_losses(app: Rota) -> Iterator[None]:
    lost: list[Event] = []
    app.subscribe(lambda each: lost.append(each) if isinstance(each, LockForfeited) else None)
    yield
    assert lost == []


@asynccontextmanager
async def behind_a_proxy(dsn: str) -> AsyncIterator[tuple[Rota, Proxy]]:
    with Proxy(dsn) as proxy:
        async with Rota(proxy.dsn) as app:
            yield app, proxy


async def test_renewal_repeatedly_terminated_connection_keeps_the_lock(
    direct_dsn: str, db: Db
) -> None:
    named = make_conninfo(direct_dsn, application_name="holder")
    async with Rota(named) as holder:
        async with holder.lock("invoices", ttl=1) as lock:
            killed = 0
            for _ in range(12):
                await asyncio.sleep(0.2)
                found = await db.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where application_name = 'holder'"
                )
                killed += len(await found.fetchall())
            assert lock.held
            assert not lock.lost.is_set()
            assert killed > 6
            [[renewals]] = await (await db.execute("select renewals from rota.locks")).fetchall()
            assert renewals > 4


async def test_renewal_outage_shorter_than_ttl_keeps_the_lock(direct_dsn: str) -> None:
    """Every kind of outage begins at several points between two renewals, all at once."""
    ttl, outage, points = 3.0, 0.75, 4

    async def suffer(how: str, number: int) -> None:
        async with behind_a_proxy(direct_dsn) as (app, proxy):
            with no_losses(app):
                async with app.lock(f"{how} {number}", ttl=ttl) as lock:
                    await asyncio.sleep(number * ttl / 3 / points)
                    begin_outage(proxy, how)
                    await asyncio.sleep(outage)
                    proxy.heal()
                    await asyncio.sleep(1.2)
                    assert lock.held

    await asyncio.gather(*(suffer(how, number) for how in WAYS for number in range(points)))


@dataclass(frozen=True, slots=True)
class LockLoss:
    """Loss of a lock whose holder was cut off. Times are the database's."""

    relied_on_until: datetime
    told: datetime
    acquired: datetime
    """Time at which another instance acquired the lock."""
    late: float
    """Seconds between the end of trust and the report of the loss."""
    took: float
    """Seconds from the beginning of the outage until the holder left the block."""
    events: int


async def database_time(db: Db) -> datetime:
    [[at]] = await (await db.execute("select clock_timestamp()")).fetchall()
    assert isinstance(at, datetime)
    return at


async def cut_off(direct_dsn: str, how: str, ttl: float) -> LockLoss:
    heard: list[LockForfeited] = []
    async with (
        behind_a_proxy(direct_dsn) as (app, proxy),
        Rota(direct_dsn) as other,
        await AsyncConnection.connect(direct_dsn, autocommit=True) as db,
    ):
        app.subscribe(lambda each: heard.append(each) if isinstance(each, LockForfeited) else None)
        lock = app.lock(how, ttl=ttl, on_lost="cancel")
        told: list[tuple[float, datetime]] = []

        async def body() -> None:
            async with lock:
                begin_outage(proxy, how)
                try:
                    await asyncio.sleep(30)
                finally:
                    told.append((LeaseClock().now(), await database_time(db)))
                    assert not lock.held
                    assert lock.lost.is_set()

        began, before = time.monotonic(), LeaseClock().now()
        then = await database_time(db)
        first = asyncio.create_task(body())
        await asyncio.sleep(0.3)
        second = await other.lock(how).acquire()
        with pytest.raises(LockLost, match="expired before it could be renewed"):
            await first
        took = time.monotonic() - began
        [[acquired]] = await (
            await db.execute("select acquired from rota.locks where name = %s", (how,))
        ).fetchall()
        proxy.heal()
        await asyncio.sleep(0.5)
        assert not lock.held
        assert second.held
        await second.release()
        until = lock._require_lease().trusted_until
        [(at, by_database)] = told
        # At local time `before` the database's clock had not reached `then`, so this is an upper bound.
        latest = then + timedelta(seconds=until - before)
        return LockLoss(latest, by_database, acquired, at - until, took, len(heard))


async def test_renewal_outage_longer_than_ttl_loses_lock_before_takeover(direct_dsn: str) -> None:
    """The holder stops trusting the lock, for good, before another instance can acquire it."""
    ttl = 2.0
    for ending in await asyncio.gather(*(cut_off(direct_dsn, how, ttl) for how in WAYS)):
        print(ending)
        assert ending.relied_on_until < ending.acquired
        assert -0.01 < ending.late < 1.0
        assert ending.took < ttl + 2.5, "it is not kept waiting for an answer from the dead"
        assert ending.events == 1
