"""Ends of `once` calls: in threads, cancelled, in sync code and killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import ArgumentError, Busy
from rota.testing import Harness

Db = AsyncConnection[tuple[Any, ...]]
TTL = 1.0

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


async def is_inside(gate: Gate) -> None:
    await asyncio.to_thread(gate.inside.wait)


async def kept(db: Db) -> int:
    row = await (
        await db.execute("select count(*) from rota.once_calls where finished is not null")
    ).fetchone()
    assert row is not None
    return int(row[0])


# Plain functions


async def test_a_plain_function_does_not_block_the_loop(rota_app: Rota) -> None:
    gate = Gate()
    making = asyncio.create_task(rota_app.once("k", gate))
    await is_inside(gate)
    gate.open.set()

    assert await making != threading.current_thread().name


async def test_who_no_longer_waits_for_a_thread_does_not_undo_what_it_does(
    rota_app: Rota, db: Db
) -> None:
    gate = Gate()
    making = asyncio.create_task(rota_app.once("k", gate))
    await is_inside(gate)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making

    with pytest.raises(Busy):
        await rota_app.once("k", gate, wait=0)
    gate.open.set()
    await rota_app.once("k", gate, wait=5)
    assert gate.calls == 1
    assert await kept(db) == 1


async def test_the_error_nobody_can_be_told_of_is_told_as_another(rota_app: Rota) -> None:
    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(rota_app.once("k", stop), 60)


async def test_a_plain_function_may_answer_what_is_to_be_awaited(rota_app: Rota) -> None:
    async def number() -> int:
        return 7

    assert await rota_app.once("k", lambda: number()) == 7


# Cancellation


async def test_who_is_cancelled_lets_go_at_once(rota_app: Rota, rota_dsn: str) -> None:
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


async def test_nothing_is_left_behind_wherever_it_is_cancelled(rota_app: Rota, db: Db) -> None:
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
    made = 0
    for step in range(80):
        task = asyncio.create_task(rota_app.once(f"{step}", quick))
        await asyncio.sleep(took * step / 30)
        task.cancel()
        began = time.monotonic()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        assert time.monotonic() - began < 1
        made += not isinstance(outcome, asyncio.CancelledError)
        # The key is free or has a result; the call is never still held.
        assert isinstance(await rota_app.once(f"{step}", quick, wait=0), int)
    assert 0 < made < 80
    assert await kept(db) == 84


async def test_who_is_cancelled_while_it_is_kept_does_not_lose_it(
    rota_app: Rota, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = (await rota_app.open()).database
    insist, keeping = database.run_with_retry, asyncio.Event()

    async def slowly(*args: Any, **kwargs: Any) -> Any:
        keeping.set()
        await asyncio.sleep(0.2)
        return await insist(*args, **kwargs)

    async def quick() -> str:
        return "mine"

    monkeypatch.setattr(database, "run_with_retry", slowly)
    making = asyncio.create_task(rota_app.once("k", quick))
    await keeping.wait()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making

    assert await rota_app.once("k", str, wait=1) == "mine"


async def test_who_waits_and_is_cancelled_leaves_the_call_alone(rota_app: Rota, db: Db) -> None:
    gate = Gate()
    making = asyncio.create_task(rota_app.once("k", gate))
    await is_inside(gate)
    waiting = [asyncio.create_task(rota_app.once("k", gate)) for _ in range(5)]
    await asyncio.sleep(0.1)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    gate.open.set()

    await making
    assert gate.calls == 1
    assert await kept(db) == 1


# Sync code


@pytest.fixture
def blocking(rota_dsn: str) -> Iterator[Rota]:
    app = Rota(rota_dsn)
    yield app
    app.close_sync()


def test_a_plain_function_is_called_in_the_thread_that_asks(blocking: Rota) -> None:
    def where(*, prefix: str) -> str:
        return prefix + threading.current_thread().name

    me = "in " + threading.current_thread().name
    assert blocking.sync.once("k", where, prefix="in ") == me
    assert blocking.sync.once("k", where, prefix="") == me


def test_it_goes_on_while_the_thread_is_busy(blocking: Rota) -> None:
    def slow() -> str:
        time.sleep(2 * TTL)
        with pytest.raises(Busy, match="slow"):
            blocking.sync.once("k", slow, wait=0)
        return "done"

    assert blocking.sync.once("k", slow, ttl=TTL) == "done"


def test_an_error_lets_go_of_it(blocking: Rota) -> None:
    def fail() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        blocking.sync.once("k", fail)
    with pytest.raises(ArgumentError, match="cannot be stored"):
        blocking.sync.once("k", lambda: object(), wait=0)
    assert blocking.sync.once("k", str, "next", wait=0) == "next"


def test_what_is_to_be_awaited_is_awaited(blocking: Rota) -> None:
    async def number(n: int) -> int:
        return n + 1

    assert blocking.sync.once("a", number, 6) == 7
    assert blocking.sync.once("b", lambda: number(7)) == 8
    assert blocking.sync.once("b", number, 1) == 8


# Retention


async def test_a_result_is_kept_for_so_long_and_not_longer(rota_harness: Harness, db: Db) -> None:
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


async def test_what_need_not_be_kept_goes_by_itself(rota_harness: Harness, db: Db) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(datetime(2026, 1, 1, tzinfo=UTC))
    for number in range(25):
        await app.once(f"{number:02}", str, retention=60)
    await clock.advance(timedelta(minutes=2))

    left = []
    for number in range(3):
        await app.once(f"new {number}", str)
        left.append(await kept(db))

    assert left == [16, 7, 3]


# Killed processes


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_who_is_killed_or_frozen_is_replaced_when_his_time_is_up(
    how: signal.Signals, rota_app: Rota, rota_dsn: str
) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
        [sys.executable, "-c", KILLED, rota_dsn, str(TTL)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "busy\n"
        await asyncio.sleep(TTL)
        with pytest.raises(Busy, match=f"process {process.pid} "):
            await rota_app.once("k", str, "other", wait=0)
        began = time.monotonic()
        process.send_signal(how)

        assert await rota_app.once("k", str, "other", wait=10) == "other"
        assert TTL / 3 < time.monotonic() - began < TTL + 1
    finally:
        process.kill()
        process.communicate()
