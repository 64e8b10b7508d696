"""`once`: one call per key, and every caller gets its result."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import ArgumentError, Busy, DefinitionError, LockLost, PayloadTooLarge, ResultError
from rota.store.database import run
from support.owned_clock import ClockedRota, OwnedClock

Db = AsyncConnection[tuple[Any, ...]]
TTL = 30.0
POOLED = os.environ.get("ROTA_TEST_POOLER") == "1"


@dataclass
class Receipt:
    number: int
    at: datetime
    lines: tuple[str, ...] = ()


class Charger:
    """Function under test; counts its calls and how many of them overlap."""

    def __init__(self) -> None:
        self.calls = 0
        self.inside = 0
        self.most = 0
        self.busy = asyncio.Event()
        self.go_on = asyncio.Event()

    async def charge(self, amount: int, *, fails: bool = False) -> Receipt:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.busy.set()
        try:
            await self.go_on.wait()
            if fails:
                raise ValueError("no money")
            return Receipt(amount + self.calls, datetime(2026, 1, 1, tzinfo=UTC), ("a", "b"))
        finally:
            self.inside -= 1
            self.busy.clear()


@pytest.fixture
async def apps(rota_dsn: str) -> AsyncIterator[list[Rota]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Rota(rota_dsn)) for _ in range(3)]


@pytest.fixture
def charger() -> Charger:
    return Charger()


@pytest.fixture
async def notified_apps(rota_dsn: str) -> AsyncIterator[list[Rota]]:
    """Apps whose waiting calls never poll: their clock stands still. Through a pooler they poll."""
    async with AsyncExitStack() as stack:
        apps = [Rota(rota_dsn) if POOLED else ClockedRota(rota_dsn) for _ in range(2)]
        yield [await stack.enter_async_context(app) for app in apps]


@pytest.fixture
async def clocked_apps(rota_dsn: str) -> AsyncIterator[list[ClockedRota]]:
    """Apps that share a lease clock."""
    clock = OwnedClock()
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ClockedRota(rota_dsn, clock)) for _ in range(3)]


async def wait_until_true(db: Db, question: str) -> None:
    """Wait until the query returns true."""
    async with asyncio.timeout(60):
        while True:
            cursor = await db.execute(question.encode())
            if await cursor.fetchone() == (True,):
                return
            await asyncio.sleep(0.01)


EXPIRES = "select expires from rota.once_calls"
WAITED_FOR = "select awaited_since is not null from rota.once_calls"


async def rows(db: Db) -> list[tuple[Any, ...]]:
    cursor = await db.execute("select key, finished is not null from rota.once_calls order by key")
    return await cursor.fetchall()


async def test_once_concurrent_callers_share_one_call(
    apps: list[Rota], charger: Charger, db: Db
) -> None:
    asking = [asyncio.create_task(app.once("invoice:42", charger.charge, 42)) for app in apps * 10]
    await charger.busy.wait()
    await wait_until_true(db, WAITED_FOR)
    charger.go_on.set()

    answers = await asyncio.gather(*asking)

    assert charger.calls == 1
    assert set(map(repr, answers)) == {repr(Receipt(43, answers[0].at, ("a", "b")))}
    assert await apps[0].once("invoice:42", charger.charge, 1) == answers[0]
    assert (await apps[0].once("invoice:43", charger.charge, 1)).number == 3


async def test_once_all_callers_get_the_json_form_of_the_result(rota_app: Rota) -> None:
    def untyped(*args):  # type: ignore[no-untyped-def]
        return {"args": args, 1: None}

    first = await rota_app.once("k", untyped, 1, 2)

    assert first == await rota_app.once("k", untyped) == {"args": [1, 2], "1": None}


async def test_once_result_none_is_stored(rota_app: Rota) -> None:
    calls: list[int] = []

    async def nothing() -> None:
        calls.append(1)

    for _ in range(2):
        assert await rota_app.once("k", nothing) is None  # type: ignore[func-returns-value]
    assert calls == [1]


async def test_once_stored_result_takes_one_statement(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def counted(connection: Any, query: Any, schema: str) -> Any:
        asked.append(query.statement)
        return await run(connection, query, schema)

    await rota_app.once("k", len, "abc")
    monkeypatch.setattr("rota.coord.acquire.run", counted)
    monkeypatch.setattr("rota.store.database.run", counted)

    assert await rota_app.once("k", len, "abc") == 3
    assert asked == ["once_call/begin"]


# While a call is running


async def test_once_without_wait_raises_busy_that_names_the_caller(
    apps: list[Rota], charger: Charger
) -> None:
    making = asyncio.create_task(apps[0].once("k", charger.charge, 1))
    await charger.busy.wait()

    for wait in (0, 0.15):
        began = time.monotonic()
        with pytest.raises(Busy, match=rf"{socket.gethostname()}, process {os.getpid()} \(Charger"):
            await apps[1].once("k", charger.charge, 1, wait=wait)
        assert time.monotonic() - began >= wait

    charger.go_on.set()
    await making
    assert (await apps[1].once("k", charger.charge, 1, wait=0)).number == 2


SLOW = """
create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.1); return new; end';
create trigger slow before insert on rota.once_calls for each row execute function slow()
"""


async def test_once_concurrent_first_callers_raise_busy_naming_the_caller(
    apps: list[Rota], db: Db, charger: Charger
) -> None:
    """Busy names the caller that makes the call, although no row existed when each of them began."""
    await db.execute(SLOW)
    asking = [
        asyncio.create_task(app.once("k", charger.charge, 1, wait=0))
        for app in apps
        for _ in range(4)
    ]
    pending = set(asking)
    while len(pending) > 1:  # every caller but the one that makes the call has its answer
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    charger.go_on.set()

    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert charger.calls == 1
    refused = [str(answer) for answer in answers if isinstance(answer, Busy)]
    assert len(refused) == len(answers) - 1
    assert {f"process {os.getpid()}" in each for each in refused} == {True}


async def test_once_waiting_caller_is_woken_with_the_result(
    notified_apps: list[Rota], charger: Charger, db: Db
) -> None:
    making = asyncio.create_task(notified_apps[0].once("k", charger.charge, 1))
    await charger.busy.wait()
    waiting = asyncio.create_task(notified_apps[1].once("k", charger.charge, 1))
    await wait_until_true(db, WAITED_FOR)
    charger.go_on.set()
    assert await waiting == await making


async def test_once_failed_call_is_made_by_the_next_waiter(
    notified_apps: list[Rota], charger: Charger, db: Db
) -> None:
    failing = asyncio.create_task(notified_apps[0].once("k", charger.charge, 1, fails=True))
    await charger.busy.wait()
    waiting = asyncio.create_task(notified_apps[1].once("k", charger.charge, 1))
    await wait_until_true(db, WAITED_FOR)
    charger.go_on.set()

    with pytest.raises(ValueError, match="no money"):
        await failing
    assert (await waiting).number == 3
    assert charger.most == 1


async def test_once_blocked_event_loop_keeps_the_call(
    clocked_apps: list[ClockedRota], direct_dsn: str
) -> None:
    seen = []

    async def asleep() -> str:
        await asyncio.to_thread(other)
        with psycopg.connect(direct_dsn, autocommit=True) as connection:
            for _ in range(4):
                expires = connection.execute(EXPIRES).fetchone()
                clocked_apps[0].lease_clock.advance(TTL / 3)
                while connection.execute(EXPIRES).fetchone() == expires:
                    time.sleep(0.01)  # noqa: ASYNC251 - a blocked loop is what this is about
        await asyncio.to_thread(other)
        return "mine"

    def other() -> None:
        with pytest.raises(Busy):
            clocked_apps[1].sync.once("k", len, "", wait=0)
        seen.append(1)

    try:
        assert await clocked_apps[0].once("k", asleep, ttl=TTL) == "mine"
        assert seen == [1, 1]
        assert await clocked_apps[2].once("k", str) == "mine"
    finally:
        clocked_apps[1].close_sync()


# Loss


async def test_once_frozen_caller_is_replaced_and_its_result_discarded(
    clocked_apps: list[ClockedRota], charger: Charger, db: Db
) -> None:
    frozen = asyncio.create_task(clocked_apps[0].once("k", charger.charge, 100, ttl=TTL))
    await charger.busy.wait()
    await stop_renewal(clocked_apps[0])

    waiting = asyncio.create_task(clocked_apps[1].once("k", str, "other"))
    await wait_until_true(db, WAITED_FOR)
    await clocked_apps[0].advance(TTL / 2)
    with pytest.raises(Busy):
        await clocked_apps[2].once("k", str, wait=0)
    await clocked_apps[0].advance(TTL / 2)
    await clocked_apps[0].lease_clock.advance_until(waiting.done)
    assert await waiting == "other"
    charger.go_on.set()

    with pytest.raises(
        LockLost, match="another instance has started it; this result was discarded"
    ):
        await frozen
    assert await clocked_apps[2].once("k", str) == "other"


async def stop_renewal(app: Rota) -> None:
    """Stop renewing the call, as if this process were frozen."""
    company = await app.coordinator()
    [lease] = company.once_renewals._held_leases()
    company.once_renewals.remove(lease)


async def test_once_late_result_without_takeover_is_stored(
    clocked_apps: list[ClockedRota], charger: Charger
) -> None:
    late = asyncio.create_task(clocked_apps[0].once("k", charger.charge, 1, ttl=TTL))
    await charger.busy.wait()
    await stop_renewal(clocked_apps[0])
    await clocked_apps[0].advance(2 * TTL)
    charger.go_on.set()

    assert await late == await clocked_apps[1].once("k", charger.charge, 5)


async def test_once_broken_connection_does_not_lose_the_result(
    rota_app: Rota, db: Db, charger: Charger
) -> None:
    making = asyncio.create_task(rota_app.once("k", charger.charge, 1))
    await charger.busy.wait()
    await db.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    charger.go_on.set()

    assert (await making).number == 2
    assert await rows(db) == [("k", True)]


async def test_once_requests_with_lost_answers_are_resent(
    rota_app: Rota, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers to begin and finish are lost.

    Both are sent again, and the caller does not wait for the TTL.
    """
    lost: list[str] = []
    database = (await rota_app.open()).database
    exchange = database.pipeline

    def cut(statement: str) -> None:
        if statement.startswith("once_call/") and statement not in lost:
            lost.append(statement)
            raise OSError("cut")

    async def ran(connection: Any, query: Any, schema: str) -> Any:
        answer = await run(connection, query, schema)
        cut(query.statement)
        return answer

    async def exchanged(segments: Any, patience: float = 0.0) -> Any:
        answer = await exchange(segments, patience)
        cut(segments[0][0].statement)
        return answer

    monkeypatch.setattr("rota.coord.acquire.run", ran)
    monkeypatch.setattr(database, "pipeline", exchanged)

    assert await asyncio.wait_for(rota_app.once("k", len, "abc"), 60) == 3
    assert lost == ["once_call/begin", "once_call/finish"]
    assert await rows(db) == [("k", True)]


# Results that cannot be stored


async def test_once_unstorable_result_raises_and_frees_the_key(rota_app: Rota, db: Db) -> None:
    calls: list[int] = []

    async def strange(value):  # type: ignore[no-untyped-def]
        calls.append(1)
        return value

    async def wrong() -> int:
        calls.append(1)
        return "one"  # type: ignore[return-value]

    with pytest.raises(ArgumentError, match="strange cannot be stored: object has no form in JSON"):
        await rota_app.once("k", strange, object())
    with pytest.raises(PayloadTooLarge, match="keep it elsewhere and pass a reference"):
        await rota_app.once("k", strange, "x" * 1024 * 1024)
    with pytest.raises(ResultError, match=r"the result of .*wrong is not int"):
        await rota_app.once("k", wrong)
    assert len(calls) == 3
    assert await rows(db) == []
    assert await rota_app.once("k", strange, 1, wait=0) == 1


async def test_once_unresolved_return_hint_raises_before_the_call(rota_app: Rota) -> None:
    def unknown() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821, UP037
        raise AssertionError("it was called")

    with pytest.raises(DefinitionError, match="must name things that exist"):
        await rota_app.once("k", unknown)


async def test_once_stored_result_of_other_type_raises_result_error(rota_app: Rota) -> None:
    async def before() -> str:
        return "text"

    async def after() -> int:
        raise AssertionError("it was called")

    await rota_app.once("k", before)
    with pytest.raises(ResultError, match=r"the result of .*after is not int"):
        await rota_app.once("k", after)


# Refused arguments


async def test_once_invalid_arguments_raise_argument_error(rota_app: Rota) -> None:
    for key in ("", "x" * 501, "a\0", "\ud800"):
        with pytest.raises(ArgumentError, match="1 to 500 characters"):
            await rota_app.once(key, str)
    with pytest.raises(ArgumentError, match="too short to be renewed"):
        await rota_app.once("k", str, ttl=0.1)
    with pytest.raises(ArgumentError, match="more than 0 s, or None to keep it forever"):
        await rota_app.once("k", str, retention=0)
