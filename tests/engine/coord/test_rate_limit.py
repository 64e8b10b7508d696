"""Rate limits shared by all instances."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import ArgumentError, RateLimitExceeded
from rota.store import rate_limits
from rota.testing import Harness

Db = AsyncConnection[tuple[Any, ...]]
HOUR = 3600.0
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
async def apps(rota_dsn: str) -> AsyncIterator[list[Rota]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Rota(rota_dsn)) for _ in range(3)]


async def allowed(app: Rota, many: int, **how: Any) -> int:
    """Return how many of `many` calls are allowed now."""
    answers = [await app.rate_limit("feed", **how).try_take() for _ in range(many)]
    assert answers == sorted(answers, reverse=True)
    return sum(answers)


async def database_seconds(db: Db) -> float:
    row = await (
        await db.execute("select extract(epoch from clock_timestamp())::float8")
    ).fetchone()
    assert row is not None
    return float(row[0])


async def test_rate_limit_shared_by_instances_is_not_exceeded(apps: list[Rota], db: Db) -> None:
    """Calls wait all the time, so that any permit granted in excess shows in the start times."""
    apart, burst, many = 0.02, 4, 75
    writing, starts = asyncio.Lock(), list[float]()
    began = await database_seconds(db)

    async def go(app: Rota) -> None:
        rate = app.rate_limit("feed", 50, per=1, burst=burst)
        for _ in range(5):
            await rate.take()
            async with writing:
                starts.append(await database_seconds(db))

    await asyncio.gather(*(go(app) for app in apps for _ in range(5)))

    assert len(starts) == many
    for number, start in enumerate(sorted(starts), 1):
        assert number <= burst + (start - began) / apart
    assert max(starts) - began < (many - burst) * apart + 1.0


async def test_rate_limit_waiters_proceed_in_order(apps: list[Rota], db: Db) -> None:
    """Each request gets the next slot, and no waiter proceeds before its own."""
    apart = timedelta(seconds=0.05)
    slots: list[datetime] = []
    went: dict[int, datetime] = {}

    async def go(number: int) -> None:
        await apps[number % 3].rate_limit("feed", 20, per=1).take()
        [[went[number]]] = await (await db.execute("select rota.clock()")).fetchall()

    async with asyncio.TaskGroup() as waiting:
        for number in range(8):
            before = await refilled_at(db)
            waiting.create_task(go(number))
            while (after := await refilled_at(db)) == before:
                await asyncio.sleep(0.001)
            assert after is not None
            slots.append(after - apart)

    assert all(later - earlier >= apart for earlier, later in pairwise(slots))
    assert all(went[number] >= slot for number, slot in enumerate(slots))


async def refilled_at(db: Db) -> datetime | None:
    found = await (await db.execute("select refilled_at from rota.rate_limits")).fetchone()
    return None if found is None else found[0]


async def test_rate_limit_burst_allows_only_saved_permits(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    how: dict[str, Any] = {"limit": 6, "per": timedelta(minutes=1), "burst": 5}

    assert await allowed(app, 8, **how) == 5
    await clock.advance(timedelta(seconds=9.999))
    assert await allowed(app, 8, **how) == 0
    await clock.advance(timedelta(seconds=0.001))
    assert await allowed(app, 8, **how) == 1
    await clock.advance(timedelta(seconds=35))
    assert await allowed(app, 8, **how) == 3
    await clock.advance(timedelta(days=3))
    assert await allowed(app, 8, **how) == 5


async def test_rate_limit_random_requests_never_exceed_any_interval(rota_harness: Harness) -> None:
    """Random requests at random times; the check counts every interval between two granted requests."""
    app, clock = rota_harness.app, rota_harness.clock
    database = (await app.open()).database
    dice, now, went = random.Random(5), 0.0, list[tuple[float, int]]()
    apart, burst = 1 / 3, 4
    refused = 0
    await clock.set(NOON)
    for _ in range(150):
        wait = dice.choice([0.0, 0.5, 5.0, math.inf])
        n = dice.randint(1, burst)
        [turn] = await database.run(rate_limits.take("feed", n, apart, burst, wait))
        if turn.is_reserved:
            assert turn.delay <= wait
            went.append((now + turn.delay, n))
        else:
            assert turn.delay > wait
            refused += 1
        if dice.random() < 0.5:
            step = dice.choice([0.001, 0.1, 1.0, 7.0])
            now += step
            await clock.advance(timedelta(seconds=step))

    assert refused > 10
    went.sort()
    for first in range(len(went)):
        many = 0
        for at, n in went[first:]:
            many += n
            assert many <= burst + (at - went[first][0]) / apart + 1e-3


async def test_rate_limit_concurrent_first_calls_are_all_counted(apps: list[Rota]) -> None:
    asked = [app.rate_limit("new", per=HOUR, burst=7).try_take() for _ in range(10) for app in apps]

    assert sum(await asyncio.gather(*asked)) == 7


async def test_rate_limit_too_long_wait_raises_and_reserves_nothing(rota_app: Rota) -> None:
    rate = rota_app.rate_limit("feed", per=HOUR)
    await rate.take()

    for _ in range(3):
        with pytest.raises(
            RateLimitExceeded, match=r"'feed' \(1 per 3600 s\) allows no more"
        ) as raised:
            await rate.take(wait=timedelta(minutes=59))
        assert HOUR - 30 < raised.value.retry_after <= HOUR
    assert not await rate.try_take()


async def test_rate_limit_sufficient_wait_proceeds_when_due(rota_app: Rota) -> None:
    rate = rota_app.rate_limit("feed", 4, per=1)
    await rate.take()
    began = time.monotonic()

    await rate.take(wait=60)

    assert time.monotonic() - began > 0.2


async def test_rate_limit_take_of_several_counts_each(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    rate = app.rate_limit("feed", per=10, burst=5)

    assert await rate.try_take(3)
    assert not await rate.try_take(3)
    assert await rate.try_take(2)
    await clock.advance(timedelta(seconds=29))
    assert not await rate.try_take(3)
    await clock.advance(timedelta(seconds=1))
    assert await rate.try_take(3)


async def test_rate_limit_cancelled_reservation_is_not_reused(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    rate = app.rate_limit("feed", per=10)
    await rate.take()
    waiting = asyncio.create_task(rate.take())
    while not await reserved(app, 2):
        await asyncio.sleep(0.01)
    waiting.cancel()

    await clock.advance(timedelta(seconds=10))
    assert not await rate.try_take()
    await clock.advance(timedelta(seconds=10))
    assert await rate.try_take()


async def reserved(app: Rota, many: int) -> bool:
    database = (await app.open()).database
    async with database.connection() as connection:
        cursor = await connection.execute(
            "select refilled_at >= rota.clock() + make_interval(secs => 10 * %s) from rota.rate_limits",
            (many,),
        )
        return await cursor.fetchone() == (True,)


# Clock


async def test_rate_limit_after_clock_set_back_refills_as_usual(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    how: dict[str, Any] = {"per": 60, "burst": 3}
    assert await allowed(app, 5, **how) == 3

    await clock.advance(-timedelta(hours=1))

    assert await allowed(app, 5, **how) == 0, "what was used up is used up"
    await clock.advance(timedelta(minutes=1))
    assert await allowed(app, 5, **how) == 1
    await clock.advance(timedelta(minutes=3))
    assert await allowed(app, 5, **how) == 3


async def test_rate_limit_temporary_clock_jump_costs_one_burst(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    how: dict[str, Any] = {"per": 60, "burst": 3}
    assert await allowed(app, 5, **how) == 3
    await clock.advance(timedelta(days=400))
    assert await allowed(app, 5, **how) == 3
    await clock.advance(-timedelta(days=400))

    assert await allowed(app, 5, **how) == 0
    await clock.advance(timedelta(minutes=1))
    assert await allowed(app, 5, **how) == 1


async def test_rate_limit_small_clock_step_back_resets_nothing(
    rota_harness: Harness,
) -> None:
    """A statement that waits for the row has an earlier time than the one before it."""
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    how: dict[str, Any] = {"per": 60, "burst": 3}
    assert await allowed(app, 5, **how) == 3
    for _ in range(20):
        await clock.advance(-timedelta(seconds=2))
        assert await allowed(app, 1, **how) == 0
        await clock.advance(timedelta(seconds=2))
        assert await allowed(app, 1, **how) == 0

    await clock.advance(timedelta(seconds=59))
    assert await allowed(app, 1, **how) == 0
    await clock.advance(timedelta(seconds=1))
    assert await allowed(app, 2, **how) == 1


# Another rate under the same name, during a deploy


async def test_rate_limit_raised_rate_applies_at_once(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    assert await allowed(app, 9, per=24 * HOUR, burst=6) == 6

    assert await allowed(app, 9, per=1, burst=2) == 0
    await clock.advance(timedelta(seconds=5))
    assert await allowed(app, 9, per=1, burst=2) == 1, "four of six are still used up, of two"


async def test_rate_limit_lowered_rate_applies_at_once(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    assert await allowed(app, 5, per=0.1, burst=2) == 2

    assert await allowed(app, 5, per=60, burst=2) == 0
    await clock.advance(timedelta(seconds=59))
    assert await allowed(app, 5, per=60, burst=2) == 0, "not at the speed it had before"
    await clock.advance(timedelta(seconds=1))
    assert await allowed(app, 5, per=60, burst=2) == 1


async def test_rate_limit_old_and_new_definition_share_the_permits(rota_harness: Harness) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    await clock.set(NOON)
    old, new = app.rate_limit("feed", per=10, burst=4), app.rate_limit("feed", per=40, burst=4)

    assert [await rate.try_take() for rate in (old, new, old, new, old, new)] == [True] * 4 + [
        False,
        False,
    ]


# Refusals


def test_rate_limit_invalid_definition_raises_argument_error(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    for limit, per in (
        (0, 1),
        (-1, 1),
        (1, 0),
        (1, -1),
        (math.inf, 1),
        (1, math.inf),
        (math.nan, 1),
    ):
        with pytest.raises(ArgumentError, match="both have to be above 0"):
            app.rate_limit("feed", limit, per=per)
    for burst in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="a whole number from 1 on"):
            app.rate_limit("feed", per=1, burst=burst)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="20000 a second, more than one row can count"):
        app.rate_limit("feed", 20_000, per=1)
    with pytest.raises(ArgumentError, match="name of a rate"):
        app.rate_limit("", per=1)


async def test_rate_limit_take_beyond_burst_raises_argument_error(rota_app: Rota) -> None:
    rate = rota_app.rate_limit("feed", per=1, burst=3)
    for n in (4, 0, -1, 1.0):
        with pytest.raises(ArgumentError, match=r"lets 1 to 3 go at once, not .*; raise burst"):
            await rate.take(n)  # type: ignore[arg-type]
    assert await rate.try_take(3)


def test_sync_rate_limit_exhausted_raises(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    try:
        rate = app.rate_limit("feed", per=HOUR, burst=2).sync
        rate.take()
        assert rate.try_take()
        assert not rate.try_take()
        with pytest.raises(RateLimitExceeded):
            rate.take(wait=1)
    finally:
        app.close_sync()
