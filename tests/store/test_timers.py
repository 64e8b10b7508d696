"""Timers: sleeping → queued, the earliest first, never before their time by the database's clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rota.store import timers
from support.stage import Stage

NOON = datetime(2031, 3, 30, 12, tzinfo=UTC)


async def start_sleeping(stage: Stage, *minutes: float) -> list[int]:
    """Start jobs that are due this many minutes from now."""
    ids = await stage.start_several(len(minutes), at=NOON)
    for job, offset in zip(ids, minutes, strict=True):
        await stage.sql(
            "update rota.sleeping set wake_at = rota.clock() + %s where job = %s",
            *(timedelta(minutes=offset), job),
        )
    return ids


async def test_wake_queues_due_jobs_only(stage: Stage) -> None:
    late, later, future = await start_sleeping(stage, -2, -1, 5)

    [woken] = await stage.run(timers.wake(100))

    assert (woken.count, woken.queues) == (2, ["default"])
    assert await stage.sql("select job from rota.queued order by seq") == [late, later]
    assert await stage.place(future) == "sleeping"


async def test_wake_queues_jobs_in_order_of_due_time(stage: Stage) -> None:
    ids = await start_sleeping(stage, -1, -4, -2, -3)

    await stage.run(timers.wake(100))

    assert (await stage.claim(await stage.worker())).jobs == [ids[1], ids[3], ids[2], ids[0]]


async def test_wake_queues_job_behind_queued_jobs(stage: Stage) -> None:
    [sleeper] = await start_sleeping(stage, -1)
    others = await stage.start_several(3)

    await stage.run(timers.wake(100))

    assert (await stage.claim(await stage.worker())).jobs == [*others, sleeper]


async def test_wake_keeps_attempt_crashes_and_priority(stage: Stage) -> None:
    [job] = await start_sleeping(stage, -1)
    await stage.sql("update rota.sleeping set attempt = 4, crashes = 2, priority = 6, queue = 'q'")

    await stage.run(timers.wake(100))

    assert await stage.sql(
        "select job, attempt, crashes, priority, queue, task from rota.queued"
    ) == [(job, 4, 2, 6, "q", "work")]


async def test_wake_limit_takes_earliest_jobs(stage: Stage) -> None:
    ids = await start_sleeping(stage, -1, -3, -2)

    [woken] = await stage.run(timers.wake(2))

    assert woken.count == 2
    assert await stage.sql("select job from rota.sleeping") == [ids[0]]


@pytest.mark.usefixtures("stopped_clock")
async def test_wake_returns_seconds_until_next_job(stage: Stage) -> None:
    await start_sleeping(stage, -1, 5, 90)

    [woken] = await stage.run(timers.wake(100))

    assert woken.next_seconds is not None
    assert 290 < woken.next_seconds <= 300


async def test_wake_without_sleeping_jobs_returns_no_time(stage: Stage) -> None:
    [woken] = await stage.run(timers.wake(100))

    assert (woken.count, woken.queues, woken.next_seconds) == (0, [], None)


async def test_wake_concurrently_shares_jobs_without_waiting(
    stage: Stage,
) -> None:
    await start_sleeping(stage, *range(-10, 0))
    other = await stage.connect(engine=True)

    async with other.transaction():
        [mine] = await stage.run(timers.wake(6), other)
        async with asyncio.timeout(60):
            [yours] = await stage.run(timers.wake(6))

    assert (mine.count, yours.count) == (6, 4)
    assert len(await stage.sql("select distinct job from rota.queued")) == 10


async def test_wake_uses_the_database_clock(own_stage: Stage) -> None:
    """The clock is set as users' tests do; the caller's own clock does not matter."""
    stage = own_stage
    [job] = await stage.start_several(1, at=NOON)
    moves = [
        (NOON - timedelta(microseconds=1), "sleeping"),
        (NOON, "queued"),
    ]

    for now, place in moves:
        await stage.sql(
            "create or replace function rota.clock() returns timestamptz language sql stable"
            f" as $$ select timestamptz '{now.isoformat()}' $$"
        )
        await stage.run(timers.wake(100))
        assert await stage.place(job) == place
