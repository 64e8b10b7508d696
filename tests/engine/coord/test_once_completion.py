"""Ends of `once` calls: in threads, cancelled, in sync code and killed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import ArgumentError, Busy
from rota.testing import Harness
from support.owned_clock import ClockedRota

Db = AsyncConnection[tuple[Any, ...]]
TTL = 1.0

WAITED_FOR = "select awaited_since is not null from rota.once_calls"

EXPIRES = "select expires from rota.once_calls"

KILLED = """
import asyncio, sys
from rota import Rota

async def slow() -> str:
    print("busy", flush=True)
    await asyncio.sleep(60)
    return "never"

async def main() -> None:
    async with Rota(sys.argv[1]) as app:
        print(await app.once("k", slow, ttl=float(sys.argv[2])))

asyncio.run(main())
"""


class Gate:
    """Plain function that blocks until the test opens it."""

    def __init__(self) -> None:
        self.calls = 0
        self.inside = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> str:
        self.calls += 1
        self.inside.set()
        assert self.open.wait(60)
        return threading.current_thread().name


async def wait_until_inside(gate: Gate) -> None:
    await asyncio.to_thread(gate.inside.wait)


async def count_results(db: Db) -> int:
    row = await (
        await db.execute("select count(*) from rota.once_calls where finished is not null")
    ).fetchone()
    assert row is not None
    return int(row[0])


# Plain functions


async def test_once_plain_function_runs_in_another_thread(rota_app: Rota) -> None:
    gate = Gate()
    making = asyncio.create_task(rota_app.once("k", gate))
    await wait_until_inside(gate)
    gate.open.set()

    assert await making != threading.current_thread().name


async def test_once_cancelled_caller_of_thread_keeps_its_result(rota_app: Rota, db: Db) -> None:
    gate = Gate()
    making = asyncio.create_task(rota_app.once("k", gate))
    await wait_until_inside(gate)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making

    with pytest.raises(Busy):
        await rota_app.once("k", gate, wait=0)
    gate.open.set()
    await rota_app.once("k", gate, wait=60)
    assert gate.calls == 1
    assert await count_results(db) == 1


async def test_once_stop_iteration_is_raised_as_runtime_error(rota_app: Rota) -> None:
    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(rota_app.once("k", stop), 60)


async def test_once_awaitable_result_of_plain_function_is_awaited(rota_app: Rota) -> None:
    async def number() -> int:
        return 7

    assert await rota_app.once("k", lambda: number()) == 7


# Cancellation


async def test_once_cancelled_caller_frees_the_key(rota_app: Rota, rota_dsn: str) -> None:
    busy = asyncio.Event()

    async def slow() -> None:
        busy.set()
        await asyncio.sleep(60)

    making = asyncio.create_task(rota_app.once("k", slow))
    await busy.wait()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making

    async with Rota(rota_dsn) as other:
        assert await other.once("k", str, "next", wait=0) == "next"


async def test_once_cancelled_at_any_point_leaves_no_held_call(rota_app: Rota, db: Db) -> None:
    """A cancelled call has either not begun or stored its result; it never stays held."""
    await rota_app.once("warm", str)
    calls = 0

    async def quick() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.001)
        return calls

    began = time.monotonic()
    for step in range(3):
        await rota_app.once(f"warm {step}", quick)
    took = (time.monotonic() - began) / 3
    made = step = 0
    # Cancel later and later until some calls ended first: the duration of one varies.
    while step < 80 or made < 5:
        task = asyncio.create_task(rota_app.once(f"{step}", quick))
        await asyncio.sleep(took * step / 30)
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        made += not isinstance(outcome, asyncio.CancelledError)
        # The key is free or has a result; the call is never still held.
        assert isinstance(await rota_app.once(f"{step}", quick, wait=0), int)
        step += 1
    assert made < step
    assert await count_results(db) == step + 4


async def test_once_cancelled_during_store_keeps_the_result(
    rota_app: Rota, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = (await rota_app.open()).database
    insist = database.run_with_retry
    keeping, cancelled = asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **kwargs: Any) -> Any:
        keeping.set()
        await cancelled.wait()
        return await insist(*args, **kwargs)

    async def quick() -> str:
        return "mine"

    monkeypatch.setattr(database, "run_with_retry", slowly)
    making = asyncio.create_task(rota_app.once("k", quick))
    await keeping.wait()
    making.cancel()
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await making

    assert await rota_app.once("k", str, wait=60) == "mine"


async def test_once_cancelled_waiters_do_not_affect_the_call(rota_app: Rota, db: Db) -> None:
    gate = Gate()
    making = asyncio.create_task(rota_app.once("k", gate))
    await wait_until_inside(gate)
    waiting = [asyncio.create_task(rota_app.once("k", gate)) for _ in range(5)]
    async with asyncio.timeout(60):
        while (await (await db.execute(WAITED_FOR)).fetchall()) != [(True,)]:
            await asyncio.sleep(0.01)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    gate.open.set()

    await making
    assert gate.calls == 1
    assert await count_results(db) == 1


# Sync code


@pytest.fixture
def sync_app(rota_dsn: str) -> Iterator[Rota]:
    app = Rota(rota_dsn)
    yield app
    app.close_sync()


def test_sync_once_plain_function_runs_in_the_calling_thread(sync_app: Rota) -> None:
    def where(*, prefix: str) -> str:
        return prefix + threading.current_thread().name

    me = "in " + threading.current_thread().name
    assert sync_app.sync.once("k", where, prefix="in ") == me
    assert sync_app.sync.once("k", where, prefix="") == me


def test_sync_once_long_call_is_renewed(rota_dsn: str, direct_dsn: str) -> None:
    app = ClockedRota(rota_dsn)

    def slow() -> str:
        with psycopg.connect(direct_dsn, autocommit=True) as connection:
            for _ in range(4):
                expires = connection.execute(EXPIRES).fetchone()
                app.lease_clock.advance(20.0 * TTL)
                while connection.execute(EXPIRES).fetchone() == expires:
                    time.sleep(0.01)
        with pytest.raises(Busy, match="slow"):
            app.sync.once("k", slow, wait=0)
        return "done"

    try:
        assert app.sync.once("k", slow, ttl=60.0 * TTL) == "done"
    finally:
        app.close_sync()


def test_sync_once_error_frees_the_key(sync_app: Rota) -> None:
    def fail() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sync_app.sync.once("k", fail)
    with pytest.raises(ArgumentError, match="cannot be stored"):
        sync_app.sync.once("k", lambda: object(), wait=0)
    assert sync_app.sync.once("k", str, "next", wait=0) == "next"


def test_sync_once_awaitable_result_is_awaited(sync_app: Rota) -> None:
    async def number(n: int) -> int:
        return n + 1

    assert sync_app.sync.once("a", number, 6) == 7
    assert sync_app.sync.once("b", lambda: number(7)) == 8
    assert sync_app.sync.once("b", number, 1) == 8


# Retention


async def test_once_result_expires_after_its_retention(rota_harness: Harness, db: Db) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(datetime(2026, 1, 1, tzinfo=UTC))
    for key, keep in (("day", timedelta(days=1)), ("ever", None)):
        await app.once(key, str, "old", retention=keep)
    await app.once("week", str, "old")

    await clock.advance(timedelta(days=1))
    assert [await app.once(key, str, "new") for key in ("day", "week", "ever")] == [
        "new",
        "old",
        "old",
    ]
    await clock.advance(timedelta(days=6))
    assert await app.once("week", str, "new") == "new"
    await clock.advance(timedelta(days=10_000))
    assert await app.once("ever", str, "new") == "old"


async def test_once_expired_results_are_removed_by_later_calls(
    rota_harness: Harness, db: Db
) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(datetime(2026, 1, 1, tzinfo=UTC))
    for number in range(25):
        await app.once(f"{number:02}", str, retention=60)
    await clock.advance(timedelta(minutes=2))

    left = []
    for number in range(3):
        await app.once(f"new {number}", str)
        left.append(await count_results(db))

    assert left == [16, 7, 3]


# Killed processes
